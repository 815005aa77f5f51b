"""Errors name damaged or forged documents of a root, and do not look like bugs.

A root is the folder with all stored state. A version is the published statistics of a table at one snapshot. A JSON
document of each version lists its files.
"""

from __future__ import annotations

import base64
import json
import shutil
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.cli.failures import explain_error
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import CorruptionError, MetastoreError
from metastore_assets.metastore import Metastore, open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.sql import VIEWS, query
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import CONSTANTS, CONSTANTS_CRC, SECTIONS
from metastore_assets.store.segments import ROWS, TOMBSTONES
from metastore_assets.store.versions import VersionStore
from tests.cli.run_command import run


def no_spark() -> Any:
    raise AssertionError("Spark was started for small work")


def write_root(folder: Path, partition_count: int) -> None:
    """Write a configuration, a table with partitions of one file, and a root with a version of the table."""
    for part in range(partition_count):
        (folder / "lake" / f"part={part}").mkdir(parents=True)
        rows = pa.table({"x": list(range(10)), "s": ["a", "b"] * 5})
        pq.write_table(rows, folder / "lake" / f"part={part}" / "0.parquet")
    table = TableConfig.model_validate(
        {"name": "t", "uri": str(folder / "lake"), "columns": {"s": {"by_partition": "on", "value_filter": "on"}}}
    )
    refresh(MetastoreConfig(root=str(folder / "root"), tables=[table], engine="auto"), table, no_spark)
    (folder / "metastore.yaml").write_text("root: root\nengine: auto\ntables: [{name: t, uri: lake}]")


@pytest.fixture(scope="module")
def intact_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `write_root` writes for two partitions."""
    folder = tmp_path_factory.mktemp("sound")
    write_root(folder, 2)
    return folder


@pytest.fixture
def folder(intact_root: Path, tmp_path: Path) -> Path:
    shutil.copytree(intact_root, tmp_path / "copy")
    return tmp_path / "copy"


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values of a document, including containers."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = changed(document[path[0]] if path[1:] else None, path[1:], value)
    return copy


def run_all_lookups(root: str) -> None:
    versions = VersionStore(ObjectStore(root), "t")
    versions.latest()
    table = open_table(root, "t")
    table.statistics()
    table.statistics(partition="*")
    table.top("s")
    table.histogram("x")
    table.prune("x > 4 and s = 'a'")
    table.estimate("s = 'a'")
    table.filter("part = '0'").statistics()
    query(Metastore(root), " union all ".join(f"select {view}::varchar from {view}" for view in VIEWS))


BAD = [None, True, -1, 1e30, 2**70, float("nan"), "", "../../x", "/etc/passwd", "nul\0", [], {}, [[]], {"x": {}}]


@pytest.mark.parametrize("stride", [14, pytest.param(7, marks=pytest.mark.long)])
def test_changed_value_raises_metastore_error(folder: Path, stride: int) -> None:
    """Lookups with a changed version document succeed, or raise an error that is not reported as a bug.

    Each changed document has one value replaced by a value of `BAD`. Each value at the top level is replaced by four or
    five of these, one after the other. Each nested value is replaced by one or, with the mark `long`, by two.
    """
    (path,) = (folder / "root" / "t" / "versions").glob("*.json")
    document = json.loads(path.read_text())
    number = 0
    for at in leaves(document):
        for value in BAD[number % 3 :: 3] if len(at) < 2 else BAD[number % stride :: stride]:
            number += 1
            path.write_text(json.dumps(changed(document, at, value)))
            try:
                run_all_lookups(str(folder / "root"))
            except MetastoreError as error:
                assert "bug" not in explain_error(error)  # noqa: PT017 (most of the changes are errors, some are not)
            except Exception as error:
                raise AssertionError(f"{at} = {value!r}") from error
    assert number > 1400 / stride


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("row_count",), 1e30),
        (("row_count",), -1),
        (("files", "statistics"), "../../../etc/passwd"),
        (("files", "statistics"), "/etc/passwd"),
        (("garbage_manifest",), "../x"),
        (("garbage",), ["../x"]),
        (("value_counts", "state"), "a/../../x"),
        (("index", "files", 0, "path"), "../x"),
        (("entries", "fragments", "files", 0, "path"), "../x"),
        (("published_at",), "2024-01-01T00:00:00"),
        (("number",), "1"),
        (("schema",), "no base64"),
    ],
)
def test_error_names_document(folder: Path, field: tuple[Any, ...], value: Any) -> None:
    (path,) = (folder / "root" / "t" / "versions").glob("*.json")
    path.write_text(json.dumps(changed(json.loads(path.read_text()), field, value)))
    with pytest.raises(CorruptionError, match=r"root/t/versions/1\.json.*--full"):
        open_table(str(folder / "root"), "t")
    done = run("show", "t", config=folder / "metastore.yaml")
    assert done.exit_code == 3
    assert "versions/1.json" in done.stderr
    assert "bug" not in done.stderr


def nested_schema(levels: int) -> pa.Schema:
    type_: pa.DataType = pa.int8()
    for _ in range(levels):
        type_ = pa.struct([("a", type_)])
    return pa.schema([("x", type_)])


@pytest.mark.parametrize("levels", [100, 2_000, 50_000])
def test_deeply_nested_json(folder: Path, levels: int) -> None:
    (path,) = (folder / "root" / "t" / "versions").glob("*.json")
    text = path.read_text()
    location_json = '"table_location": ' + '{"x": ' * levels + "1" + "}" * levels + ","
    for damaged_text in (
        "[" * levels + "]" * levels,
        text.replace('"table_location":', f'{location_json} "other":', 1),
    ):
        path.write_text(damaged_text)
        try:
            run_all_lookups(str(folder / "root"))
        except CorruptionError as error:
            assert "versions/1.json" in str(error)  # noqa: PT017 (a place that nobody asks for is none)
    document = json.loads(text)
    if levels <= 2_000:
        data = nested_schema(levels).serialize().to_pybytes()
        document["schema"] = base64.b64encode(zlib.compress(data)).decode()
        path.write_text(json.dumps(document))
        with pytest.raises(MetastoreError):
            run_all_lookups(str(folder / "root"))


def test_a_schema_that_unpacks_to_gigabytes_is_refused(folder: Path) -> None:
    """A version whose schema unpacks to 320 MiB of zeros is refused with less than 300 MiB of memory."""
    (path,) = (folder / "root" / "t" / "versions").glob("*.json")
    deflater = zlib.compressobj(1)
    packed_schema = b"".join(deflater.compress(bytes(1 << 24)) for _ in range(20)) + deflater.flush()
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "schema": base64.b64encode(packed_schema).decode()}))
    tracemalloc.start()
    with pytest.raises(CorruptionError, match=r"1\.json.*134,217,728"):
        open_table(str(folder / "root"), "t")
    assert tracemalloc.get_traced_memory()[1] < 300 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("kind", ["fragments", "partitions", "specs", "nodes"])
def test_entries_with_other_columns_are_damaged(tmp_path: Path, kind: str) -> None:
    write_root(tmp_path, 8)
    paths = list((tmp_path / "root" / "t" / "entries").glob(f"*.{kind}.parquet"))
    assert paths
    for path in paths:
        sections = {SECTIONS: json.dumps([[TOMBSTONES, 0, 0], [ROWS, 0, 2]])}
        pq.write_table(pa.table({"x": [1, 2]}).replace_schema_metadata(sections), path)
    version = VersionStore(ObjectStore(str(tmp_path / "root")), "t").read(1)
    with pytest.raises(CorruptionError, match=rf"\.{kind}\.parquet\b"):
        list(getattr(version, kind))


@pytest.mark.parametrize("name", ["../../../secret.parquet", "/etc/passwd", "a//b"])
def test_paths_in_entries_stay_below_the_table(folder: Path, name: str) -> None:
    (path,) = (folder / "root" / "t" / "entries").glob("*.partitions.parquet")
    rows = pq.read_table(path)
    at = rows.column_names.index("statistics")
    forged_rows = rows.set_column(at, "statistics", pa.array([name] * len(rows)))
    metadata = pq.read_metadata(path).metadata
    keys = (SECTIONS, CONSTANTS, CONSTANTS_CRC)
    pq.write_table(forged_rows.replace_schema_metadata({key: metadata[key.encode()] for key in keys}), path)
    with pytest.raises(CorruptionError, match="forged"):
        open_table(str(folder / "root"), "t").statistics(partition="part=0")
