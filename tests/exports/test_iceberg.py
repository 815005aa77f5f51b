"""Exports to Iceberg: what pyiceberg, pyarrow and `datasketches` find in the exported files.

An export writes a statistics file (Puffin) and registers it in the metadata of the Iceberg table.

The value counts of a column are its distinct values with the frequency of each.

A version is the published statistics of a table at one snapshot. A hidden column has the policy `values: hidden`: new
versions have no values of it. The state of a statistic is an intermediate result that can be merged with others, such
as a sketch.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import datasketches
import mmh3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from metastore_assets.errors import TableNotFoundError
from metastore_assets.exports.iceberg import target as iceberg_target
from metastore_assets.exports.iceberg.sketches import hash_single_values
from metastore_assets.exports.writing import write_exports
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import is_current, plan_refresh
from metastore_assets.statistics import theta
from metastore_assets.store.versions import versions_of
from metastore_assets.values.physical import canonical
from metastore_assets.values.types import type_class
from tests.exports.iceberg_lake import IcebergLake
from tests.exports.rest_catalog import serve_catalog
from tests.robustness.refresh_assertions import no_spark


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[IcebergLake]:
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=str(tmp_path / "lake")) as catalog:
        catalog.create_namespace("sales")
        yield IcebergLake(tmp_path, catalog)


def hashes_of(values: Iterable[Any], type_: IcebergType) -> list[int]:
    """Return the least hashes of values in order, as many as a sketch retains.

    pyiceberg and mmh3 compute them.
    """
    serialized_values = {to_bytes(type_, value) for value in values if value is not None}
    hashes = {mmh3.hash64(each, 9001, signed=False)[0] >> 1 for each in serialized_values if each}
    return sorted(hashes)[: theta.NOMINAL_ENTRIES]


def retained(sketch: bytes) -> list[int]:
    return sorted(datasketches.compact_theta_sketch.deserialize(sketch))


def all_types() -> pa.Table:
    """Return a table with columns of Iceberg's types.

    Every column has nulls. Some columns have a value twice, or values at the limits of their type.
    """
    moment = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "boolean": ([True, False, None, True], pa.bool_()),
        "int": ([1, -1, None, 2**31 - 1], pa.int32()),
        "long": ([1, -1, None, -(2**63)], pa.int64()),
        "float": ([1.5, -2.25, None, 3.0e38], pa.float32()),
        "double": ([1.5, float("inf"), None, 1e300], pa.float64()),
        "date": ([dt.date(1969, 12, 31), dt.date(2024, 1, 1), None, dt.date(9999, 12, 31)], pa.date32()),
        "time": ([dt.time(0, 0), dt.time(23, 59, 59, 999999), None, dt.time(1)], pa.time64("us")),
        "timestamp": ([moment, dt.datetime(1900, 1, 1), None, moment], pa.timestamp("us")),
        "timestamptz": ([moment.replace(tzinfo=dt.UTC), None, None, None], pa.timestamp("us", "UTC")),
        "string": (["a", "ä" * 100, None, ""], pa.string()),
        "binary": ([b"\0", b"x" * 16, None, b"y" * 33], pa.binary()),
        "fixed": ([b"abcd", b"\0\0\0\0", None, b"abcd"], pa.binary(4)),
        "small": ([Decimal("0.00"), Decimal("-1.28"), Decimal("1.28"), None], pa.decimal128(9, 2)),
        "large": (
            [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1"), Decimal("-0.0000000256"), None],
            pa.decimal128(38, 10),
        ),
    }
    return pa.table({name: pa.array(values, type_) for name, (values, type_) in columns.items()})


@pytest.mark.parametrize("frequencies", ["all", "off"])
def test_sketches_have_the_hashes_of_single_values(lake: IcebergLake, frequencies: str) -> None:
    """Sketches have the hashes that pyiceberg and mmh3 compute from the values.

    The sketches are built from value counts or, without them, from the stored states of a statistic. `ndv`, the number
    of distinct values, is the exact count or the estimate of the sketch.
    """
    lake.settings["columns"] = {"default": {"frequencies": frequencies}}
    rows = all_types()
    table = lake.create(rows)
    (export,) = lake.refresh().exports
    assert (export.state, export.columns, export.error, export.notes) == ("written", rows.num_columns, None, ())
    exported_statistics = lake.target.read_back()
    for field in table.schema().fields:
        values = rows[field.name].to_pylist()
        assert retained(exported_statistics[field.name]["sketch"]) == hashes_of(values, field.field_type), field.name
        # A sketch leaves out empty values, as DataSketches does.
        distinct = {value for value in values if value is not None and (frequencies == "all" or value != "")}
        assert exported_statistics[field.name]["ndv"] == len(distinct), field.name


def test_a_uuid_is_its_bytes() -> None:
    value = uuid.UUID(int=2**100 + 7)
    array = pa.array([value.bytes], pa.binary(16)).cast(pa.uuid())
    assert hash_single_values(array, narrow=False).tolist() == [mmh3.hash64(value.bytes, 9001, signed=False)[0] >> 1]


def test_zeros_and_nan_are_one_value_each() -> None:
    values = pa.array([0.0, -0.0, float("nan")])
    hashes = hash_single_values(values, narrow=False).tolist()
    assert hashes[0] == hashes[1]
    java_nan = bytes.fromhex("000000000000f87f")
    assert hashes[2] == mmh3.hash64(java_nan, 9001, signed=False)[0] >> 1


def test_hashes_are_those_of_trino(realtables: Path) -> None:
    """Sketches equal those of Trino: a table that Impala wrote has sketches that Trino wrote."""
    table = realtables / "iceberg" / "impala_with_puffin_stats"
    (puffin_file,) = table.glob("metadata/*.stats")
    (data_file,) = table.glob("data/*.parq")
    puffin, rows = PuffinFile(puffin_file.read_bytes()), pq.read_table(data_file)
    assert len(puffin.footer.blobs) == rows.num_columns
    for blob in puffin.footer.blobs:
        column = rows.column(blob.fields[0] - 1).combine_chunks()
        narrow = column.type == pa.int32()
        values = canonical(column.drop_null(), type_class(column.type))
        hashes = hash_single_values(values, narrow=narrow)
        assert sorted(set(hashes.tolist())) == retained(puffin.get_blob_payload(blob))
        assert theta.build_sketch(hashes) == puffin.get_blob_payload(blob)


def test_a_registration_is_no_commit(lake: IcebergLake) -> None:
    """The registration of exported files is no commit: a refresh after it publishes and exports nothing.

    A change of the schema counts as a commit.
    """
    lake.create(pa.table({"id": [1, 2, 3]}))
    assert lake.refresh().published
    before = open_table_format(lake.config.tables[0], MetadataCache()).current()
    versions = versions_of(lake.config, "orders")
    version = versions.latest()
    assert version is not None
    assert is_current(lake.config, lake.config.tables[0], version)
    again = lake.refresh()
    assert (again.published, again.exports[0].state) == (False, "current")
    lake.settings["exports"] = {"iceberg": {"columns": ["id"]}}
    assert lake.refresh().exports[0].state == "written", "another option"
    assert open_table_format(lake.config.tables[0], MetadataCache()).current() == before
    with lake.table.update_schema() as update:
        update.add_column("more", StringType())
    assert open_table_format(lake.config.tables[0], MetadataCache()).current() != before
    assert lake.refresh().published
    assert not lake.refresh().published, "also if the schema is newer than the snapshot"


def test_a_version_of_equal_content_is_not_exported_again(lake: IcebergLake) -> None:
    """After a change of a table property, a refresh publishes a version with the same statistics.

    The catalog has these statistics already, so the refresh does not export them again.
    """
    lake.create(pa.table({"id": [1, 2, 3]}))
    lake.refresh()
    with lake.table.transaction() as transaction:
        transaction.set_properties(owner="somebody")
    again = lake.refresh()
    assert (again.published, again.exports[0].state, again.exports[0].version) == (True, "current", 1)
    assert not lake.refresh().published


def test_readers_find_the_statistics_of_each_snapshot(lake: IcebergLake) -> None:
    """Each of two snapshots has a registered statistics file with a sketch of the column.

    The metadata of the file have the `ndv`, which engines read. The sketches of both snapshots can be merged.
    """
    lake.create(pa.table({"id": [1, 2, 3]}))
    lake.refresh()
    lake.table.append(pa.table({"id": [3, 4]}))
    lake.refresh()
    files = {file.snapshot_id: file for file in lake.table.metadata.statistics}
    ndv = []
    for snapshot in lake.table.snapshots():
        file = files[snapshot.snapshot_id]
        (blob,) = file.blob_metadata
        assert (blob.type, blob.fields) == ("apache-datasketches-theta-v1", [1])
        ndv.append((blob.properties or {})["ndv"])
        assert Path(file.statistics_path).stat().st_size == file.file_size_in_bytes
        footer = Path(file.statistics_path).read_bytes()[-file.file_footer_size_in_bytes :]
        assert footer.startswith(b"PFA1")
    assert ndv == ["3", "4"]
    union = datasketches.theta_union()
    for file in files.values():
        puffin = PuffinFile(Path(file.statistics_path).read_bytes())
        union.update(datasketches.compact_theta_sketch.deserialize(puffin.get_blob_payload(puffin.footer.blobs[0])))
    assert union.get_result().get_estimate() == 4


def test_hidden_columns_and_lists_have_no_sketch(lake: IcebergLake) -> None:
    rows = pa.table({"id": [1], "secret": ["token-4711"], "tags": [["a"]], "place": [{"city": "x", "zip": 1}]})
    lake.settings["columns"] = {"secret": {"values": "hidden"}}
    lake.create(rows)
    lake.refresh()
    assert sorted(lake.target.read_back()) == ["id", "place.city", "place.zip"]
    secret = mmh3.hash64(b"token-4711", 9001, signed=False)[0] >> 1
    for path in (lake.folder / "lake").rglob("*.stats"):
        assert secret.to_bytes(8, "little") not in path.read_bytes()


def test_a_purge_removes_sketches_of_a_column_that_was_shown_before(lake: IcebergLake) -> None:
    """A purge removes the sketches of a hidden column from the files of all snapshots.

    A hash in a sketch would confirm a value to anyone who guesses it.
    """
    lake.create(pa.table({"id": [1], "secret": ["token-4711"]}))
    lake.refresh()
    lake.table.append(pa.table({"id": [2], "secret": ["token-4712"]}))
    lake.refresh()
    hashes = [mmh3.hash64(text, 9001, signed=False)[0] >> 1 for text in (b"token-4711", b"token-4712")]

    def files_with_hashes() -> list[Path]:
        files = [path for path in lake.folder.rglob("*") if path.is_file() and path.suffix != ".db"]
        return [path for path in files if any(each.to_bytes(8, "little") in path.read_bytes() for each in hashes)]

    assert len(files_with_hashes()) >= 2
    lake.settings["columns"] = {"secret": {"values": "hidden"}}
    lake.refresh()
    config, versions = lake.config, versions_of(lake.config, "orders")
    purge_result = purge(Engine.of(config, no_spark), versions, versions.newest())
    version = versions.read(purge_result.published)
    write_exports(config.tables[0], versions.objects, lambda: version, rewrite=True)
    assert files_with_hashes() == []
    assert list(lake.target.read_back()) == ["id"]
    assert len(lake.table.metadata.statistics) == 1


def test_a_table_at_a_path_is_refused(lake: IcebergLake, tmp_path: Path) -> None:
    table = lake.create(pa.table({"id": [1]}))
    lake.settings = {"uri": table.location(), "exports": ["iceberg"], "catalog": None, "table": None}
    (export,) = lake.refresh().exports
    assert export.state == "failed"
    assert "`catalog` and `table`" in str(export.error)


def test_statistics_of_others_stay_unless_they_are_to_be_replaced(lake: IcebergLake) -> None:
    lake.create(pa.table({"id": [1, 2]}))
    lake.refresh()
    (file,) = lake.table.metadata.statistics
    blobs = [blob.model_copy(update={"properties": {"ndv": "9"}}) for blob in file.blob_metadata]
    foreign = file.model_copy(update={"blob_metadata": blobs})
    with lake.table.update_statistics() as update:
        update.set_statistics(foreign)
    assert lake.target.status() is None
    failed_export = lake.refresh().exports[0]
    assert failed_export.state == "failed"
    assert "set `replace: true`" in str(failed_export.error)
    assert not lake.target.remove()
    lake.settings["exports"] = {"iceberg": {"replace": True}}
    assert lake.refresh().exports[0].state == "written"


def create_partitioned(lake: IcebergLake) -> Table:
    """Create and return an empty table that is partitioned by `day`."""
    schema = Schema(NestedField(1, "day", StringType()), NestedField(2, "id", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
    return lake.catalog.create_table("sales.orders", schema, partition_spec=spec)


def test_removing_deletes_files_and_registrations(lake: IcebergLake) -> None:
    lake.settings["exports"] = {"iceberg": {"partition_statistics": True}}
    table = create_partitioned(lake)
    table.append(pa.table({"day": ["b", "a", None, "a"], "id": [1, 2, 3, 4]}))
    lake.refresh()
    lake.settings["exports"]["iceberg"]["columns"] = ["id"]
    lake.refresh()
    metadata = lake.folder / "lake" / "sales" / "orders" / "metadata"
    assert (len(list(metadata.glob("*.stats"))), len(list(metadata.glob("*.parquet")))) == (1, 1)
    assert lake.target.remove()
    assert not lake.table.metadata.statistics
    assert not lake.table.metadata.partition_statistics
    assert not [*metadata.glob("*.stats"), *metadata.glob("*.parquet")]
    assert not lake.target.remove()


def test_a_statistics_file_that_is_gone_is_replaced(lake: IcebergLake) -> None:
    """If the registered statistics file was deleted, the next export writes another one without an error.

    A cleanup of unused files may have deleted it.
    """
    lake.create(pa.table({"id": [1, 2], "note": ["a", "b"]}))
    lake.refresh()
    Path(lake.table.metadata.statistics[0].statistics_path.removeprefix("file://")).unlink()
    lake.settings["columns"] = {"note": {"values": "hidden"}}
    (export,) = lake.refresh().exports
    assert (export.state, export.error) == ("written", None)
    assert list(lake.target.read_back()) == ["id"]


def test_partition_statistics_of_others_stay_unless_they_are_to_be_replaced(lake: IcebergLake) -> None:
    lake.settings["exports"] = {"iceberg": {"partition_statistics": True}}
    schema = Schema(NestedField(1, "day", StringType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
    table = lake.catalog.create_table("sales.orders", schema, partition_spec=spec)
    table.append(pa.table({"day": ["a", "b"]}))
    snapshot = table.metadata.current_snapshot_id
    other = {"snapshot-id": snapshot, "statistics-path": "file:///other.parquet", "file-size-in-bytes": 1}
    update = SetPartitionStatisticsUpdate.model_validate({"partition-statistics": other})
    lake.catalog.commit_table(table, (), (update,))
    assert "replace: true" in str(lake.refresh().exports[0].error)
    assert [file.statistics_path for file in lake.table.metadata.partition_statistics] == ["file:///other.parquet"]
    lake.settings["exports"] = {"iceberg": {"partition_statistics": True, "replace": True}}
    assert lake.refresh().exports[0].state == "written"
    assert "metastore-assets" in lake.table.metadata.partition_statistics[0].statistics_path


def test_a_refused_registration_leaves_no_files(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog refuses a registration because another writer committed at the same time.

    The next attempt writes new files, and the files of the refused registration are deleted.
    """
    lake.create(pa.table({"id": [1, 2]}))
    commit, attempts = iceberg_target._commit, []

    def refuse_first(*arguments: Any) -> Any:
        attempts.append(arguments)
        if len(attempts) == 1:
            raise CommitFailedException("the table has changed")
        return commit(*arguments)

    monkeypatch.setattr(iceberg_target, "_commit", refuse_first)
    assert lake.refresh().exports[0].state == "written"
    files = [path.as_posix() for path in (lake.folder / "lake").rglob("*.stats")]
    assert files == [file.statistics_path.removeprefix("file://") for file in lake.table.metadata.statistics]
    assert len(attempts) == 2


def stored_files(lake: IcebergLake) -> list[str]:
    """Return the paths of the statistics files in the table's folder."""
    metadata = lake.folder / "lake" / "sales" / "orders" / "metadata"
    return sorted(str(path) for pattern in ("*.stats", "*.parquet") for path in metadata.glob(pattern))


def registered_files(lake: IcebergLake) -> list[str]:
    metadata = lake.table.metadata
    files = (*metadata.statistics, *metadata.partition_statistics)
    return sorted(file.statistics_path.removeprefix("file://") for file in files)


def test_two_exports_at_once_leave_the_files_of_the_last(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both exports load the table before either commits.

    The second to commit replaces the files of the first.
    """
    lake.settings["exports"] = {"iceberg": {"partition_statistics": True}}
    create_partitioned(lake).append(pa.table({"day": ["b", "a"], "id": [1, 2]}))
    commit, commits = iceberg_target._commit, []

    def export_meanwhile(*arguments: Any) -> Any:
        commits.append(arguments)
        if len(commits) == 1:
            assert lake.refresh().exports[0].state == "written"
        return commit(*arguments)

    monkeypatch.setattr(iceberg_target, "_commit", export_meanwhile)
    lake.refresh()
    assert len(commits) == 2
    assert len(registered_files(lake)) == 2
    assert stored_files(lake) == registered_files(lake)


def test_a_rest_catalog_registers_replaces_and_removes_statistics(lake: IcebergLake) -> None:
    def open_catalog() -> SqlCatalog:
        return SqlCatalog("lake", uri=f"sqlite:///{lake.folder}/lake.db", warehouse=str(lake.folder / "lake"))

    with serve_catalog(open_catalog) as uri:
        lake.catalog_settings = {"type": "rest", "uri": uri}
        lake.settings["exports"] = {"iceberg": {"partition_statistics": True}}
        create_partitioned(lake).append(pa.table({"day": ["b", "a"], "id": [1, 2]}))
        assert [lake.refresh().exports[0].state for _ in range(2)] == ["written", "current"]
        assert lake.target.read_back()["id"]["ndv"] == 2
        lake.settings["exports"]["iceberg"]["columns"] = ["id"]
        assert lake.refresh().exports[0].state == "written"
        assert list(lake.target.read_back()) == ["id"]
        assert len(registered_files(lake)) == 2
        assert stored_files(lake) == registered_files(lake)
        assert lake.target.remove()
        assert stored_files(lake) == registered_files(lake) == []


def test_removing_deletes_files_of_snapshots_that_expired(lake: IcebergLake) -> None:
    """The removal of the export also deletes the statistics files of an expired snapshot.

    pyiceberg only unregisters these files when it expires the snapshot.
    """
    lake.create(pa.table({"id": [1]}))
    lake.refresh()
    lake.table.append(pa.table({"id": [2]}))
    lake.refresh()
    earlier, _ = lake.table.snapshots()
    lake.table.maintenance.expire_snapshots().by_id(earlier.snapshot_id).commit()
    assert (len(stored_files(lake)), len(registered_files(lake))) == (2, 1)
    assert lake.target.remove()
    assert stored_files(lake) == []
    assert not lake.target.remove()


def test_partition_statistics_follow_the_specification(lake: IcebergLake) -> None:
    """The rows of the partition statistics file are sorted by partition, nulls first.

    The columns have the field ids of the Iceberg specification. The counts and sizes are those of the data files.
    """
    lake.settings["exports"] = {"iceberg": {"partition_statistics": True}}
    table = create_partitioned(lake)
    table.append(pa.table({"day": ["b", "a", None, "a"], "id": [1, 2, 3, 4]}))
    table.append(pa.table({"day": ["a"], "id": [5]}))
    (export,) = lake.refresh().exports
    assert (export.state, export.notes) == ("written", ())
    (file,) = lake.table.metadata.partition_statistics
    assert file.file_size_in_bytes == Path(file.statistics_path).stat().st_size
    rows = pq.read_table(file.statistics_path)
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in rows.schema]
    assert ids == list(range(1, 13))
    counts = ("data_record_count", "data_file_count", "total_record_count")
    read_rows = [(row["partition"]["day"], *(row[name] for name in counts)) for row in rows.to_pylist()]
    assert read_rows == [(None, 1, 1, 1), ("a", 3, 2, 3), ("b", 1, 1, 1)]
    sizes = {path.stat().st_size for path in (lake.folder / "lake").rglob("data/day=b/*.parquet")}
    assert {rows["total_data_file_size_in_bytes"][2].as_py()} == sizes


@pytest.mark.parametrize("change", ["renamed", "replaced"])
def test_partition_fields_whose_values_pyiceberg_loses_have_no_partition_statistics(
    lake: IcebergLake, change: str
) -> None:
    """After a partition field was renamed or replaced, no file of partition statistics is written.

    A note of the export says so. pyiceberg looks up values by the present name of a field, so values of an earlier
    partition spec with another name would be null.
    """
    lake.settings["exports"] = {"iceberg": {"partition_statistics": True}}
    table = create_partitioned(lake)
    table.append(pa.table({"day": ["b", "a"], "id": [1, 2]}))
    if change == "renamed":
        with table.update_spec() as update:
            update.rename_field("day", "date")
    else:
        with table.update_spec() as update:
            update.add_field("id", BucketTransform(4), "part")
        with table.update_spec() as update:
            update.remove_field("part")
        with table.update_spec() as update:
            update.add_field("id", TruncateTransform(10), "part")
    table.append(pa.table({"day": ["a"], "id": [5]}))
    (export,) = lake.refresh().exports
    assert (export.state, len(export.notes)) == ("written", 1)
    assert "no partition statistics file: pyiceberg loses values" in export.notes[0]
    assert not lake.table.metadata.partition_statistics


def test_a_missing_state_is_named_until_the_next_refresh(lake: IcebergLake) -> None:
    """After a target is added, a plan names the column whose rows must be read for the target.

    The next refresh reads these rows, and exports the column, too.
    """
    exports = lake.settings.pop("exports")
    lake.settings["columns"] = {"note": {"frequencies": "off"}}
    lake.create(pa.table({"id": [1, 2], "note": ["a", "b"]}))
    lake.refresh()
    lake.settings["exports"] = exports
    plan = plan_refresh(lake.config, lake.config.tables[0])
    assert plan.to_json()["read_again"] == {"note": {f"{iceberg_target.IcebergTarget.sketch_reference}@1": 1}}
    assert lake.refresh().exports[0].columns == 2


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
@settings(
    max_examples=max(4, settings().max_examples // 10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.data())
def test_sketches_follow_random_histories(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """After each random commit, the sketch of each column has the least hashes of the table's values.

    One column's sketch comes from stored states, the other's from value counts.
    """
    folder = tmp_path_factory.mktemp("history")
    with (
        patch.object(theta, "NOMINAL_ENTRIES", 16),
        SqlCatalog("lake", uri=f"sqlite:///{folder}/lake.db", warehouse=str(folder / "lake")) as catalog,
    ):
        catalog.create_namespace("sales")
        lake = IcebergLake(folder, catalog)
        lake.settings["columns"] = {"state": {"frequencies": "off"}}
        numbers = st.lists(st.one_of(st.none(), st.integers(-40, 40)), min_size=1, max_size=30)

        def rows() -> pa.Table:
            values = pa.array(data.draw(numbers), pa.int64())
            return pa.table({"state": values, "listed": values})

        lake.create(rows())
        for _ in range(data.draw(st.integers(1, 3))):
            kind = data.draw(st.sampled_from(["append", "delete", "overwrite"]))
            if kind == "append":
                lake.table.append(rows())
            elif kind == "overwrite":
                lake.table.overwrite(rows())
            else:
                lake.table.delete(f"state < {data.draw(st.integers(-40, 40))}")
            (export,) = lake.refresh().exports
            assert export.error is None
            content = lake.table.scan().to_arrow()
            exported_statistics = lake.target.read_back()
            for name in ("state", "listed"):
                expected = hashes_of(content[name].to_pylist(), LongType())
                # Child processes that read files retain more hashes than the patched number.
                assert retained(exported_statistics[name]["sketch"])[:16] == expected
                if len(expected) < 16:
                    assert exported_statistics[name]["ndv"] == len(expected)


def test_a_table_without_a_snapshot_has_nothing_to_export(lake: IcebergLake) -> None:
    """The export of a table without a snapshot succeeds, writes no column, and has a note.

    Otherwise, each refresh of a new table would fail until the table's first commit. After the first commit, the column
    is exported.
    """
    table = lake.catalog.create_table("sales.orders", pa.schema([("id", pa.int64())]))
    (export,) = lake.refresh().exports
    assert (export.state, export.columns, export.notes) == ("written", 0, ("the table has no snapshot yet",))
    table.append(pa.table({"id": [1, 2, 2]}))
    (export,) = lake.refresh().exports
    assert (export.columns, lake.target.read_back()["id"]["ndv"]) == (1, 2)


def test_a_dropped_table_is_named(lake: IcebergLake) -> None:
    """After the table was dropped, reading the export's state is an error that names catalog and table."""
    lake.create(pa.table({"id": [1, 2]}))
    lake.refresh()
    lake.catalog.drop_table("sales.orders")
    with pytest.raises(TableNotFoundError) as error_info:
        lake.target.status()
    assert re.search(r"'lake'.*'sales\.orders'", str(error_info.value))
