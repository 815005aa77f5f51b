"""Tables opened by name in Glue equal those opened by location; invalid declarations are refused.

A fragment is the smallest unit of rows that a format adds or removes: a data file and the deletes on it.
The reference of a snapshot consists of its id and its commit time.
"""

from __future__ import annotations

import io
import uuid
from pathlib import Path
from urllib.parse import quote, unquote

import boto3
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import CatalogConfig, TableConfig
from metastore_assets.errors import MetastoreError, TableFormatError, TableNotFoundError
from metastore_assets.formats import open_table_format
from tests.formats.catalogs.conftest import SECRET, Glue
from tests.formats.catalogs.table_declarations import Declaration, delta, files, hudi, iceberg
from tests.formats.hudi.realtables import unpacked
from tests.formats.oracle import read_columns, read_rows

pytestmark = pytest.mark.s3

_REALTABLES = Path(__file__).parents[4] / "shared" / "realtables"


def _real(name: str) -> Path:
    if not (_REALTABLES / name.partition("/")[0]).exists():
        pytest.skip("the real tables are not there: ../shared/realtables")
    if name.startswith("hudi/"):
        return unpacked(_REALTABLES, name.removeprefix("hudi/"))
    return _REALTABLES / name


def _declared(name: str, folder: Path) -> Declaration:
    kind, _, root = name.partition("/")
    if kind == "delta":
        return delta("t", f"file:{folder}")
    if kind == "hudi":
        return hudi("t", folder.as_uri())
    if kind == "iceberg":
        newest = max((folder / "metadata").glob("*.metadata.json"), key=lambda file: file.name)
        return iceberg("t", str(newest))
    return files("t", str(folder), root.partition("_")[0])


_FEW = (
    "delta/rs_delta-0.8.0-special-partition",
    "hudi/mor_v6_simplekeygen_nonhivestyle_parquet",
    "iceberg/impala_v2_delete_positional",
    "listing/orc_over1k_bloom",
)
_MORE = (
    "delta/io_basic-dv-no-checkpoint",
    "delta/kernel_dv-partitioned-with-checkpoint",
    "hudi/cow_v8_nonpartitioned",
    "hudi/cow_v6_complexkeygen_hivestyle",
    "iceberg/duck_equality_deletes",
    "iceberg/impala_v3_deletion_vectors",
    "listing/parquet_sort_columns",
    "listing/parquet_list_columns",
    "listing/avro_alltypes_plain",
)


@pytest.mark.parametrize("name", [*_FEW, *(pytest.param(name, marks=pytest.mark.long) for name in _MORE)])
def test_real_tables_are_the_same_by_name(name: str, glue: Glue) -> None:
    """A table opened by its name in Glue has the schema and the rows of the same table opened by path.

    Except for plain files, the references and the ids of fragments are equal, too.
    """
    folder = _real(name)
    by_path = open_table_format(TableConfig(name="t", uri=str(folder))).snapshot()
    root = glue.open(_declared(name, folder))
    by_name = root.snapshot()
    assert root.current() == by_name.reference
    assert by_name.schema.equals(by_path.schema, check_metadata=True)
    assert by_name.format == by_path.format
    if by_path.format != "files":
        # Ids of plain files depend on the read options, which come from the catalog.
        assert by_name.reference == by_path.reference
        assert [one.id for one in by_name.fragments] == [one.id for one in by_path.fragments]
    assert repr(read_columns(by_name)) == repr(read_columns(by_path))


@pytest.mark.parametrize(
    "name",
    ["hive_special_partition", "hive_null_and_typed_partitions", "hive_partition_primitives", "hive_year_month_day"],
)
def test_registered_partitions_equal_those_of_folder_names(name: str, glue: Glue) -> None:
    """A table with partitions registered in Glue equals the same folders read without a catalog.

    The partitions are registered with the decoded values of their folders' names. The test compares partition columns,
    schemas, partition keys and rows.
    """
    folder = _real(f"listing/{name}")
    by_path = open_table_format(TableConfig(name="t", uri=str(folder))).snapshot()
    leaves = sorted({file.parent for file in folder.rglob("*") if file.is_file() and file.name[0] not in "._"})
    names = [part.partition("=")[0] for part in leaves[0].relative_to(folder).parts]
    partitions = [
        ([unquote(part.partition("=")[2]) for part in leaf.relative_to(folder).parts], f"file:{leaf}")
        for leaf in leaves
    ]
    columns = [(name, "string") for name in names]
    by_name = glue.snapshot(files("t", f"file:{folder}", partition_columns=columns, partitions=partitions))
    assert by_name.partition_columns == by_path.partition_columns
    assert by_name.schema.equals(by_path.schema)
    keys = [[fragment.partition_key for fragment in snapshot.fragments] for snapshot in (by_name, by_path)]
    assert keys[0] == keys[1]
    rows = [sorted(map(repr, read_rows(snapshot))) for snapshot in (by_name, by_path)]
    assert rows[0] == rows[1]


def test_a_table_in_a_bucket_is_read_with_options_of_the_catalog(glue: Glue, s3_options: dict[str, str]) -> None:
    """A table at a location with Hadoop's scheme `s3a` is read with the catalog's options for S3.

    Options of the table take precedence over the catalog's.
    """
    prefix = f"lake/{uuid.uuid4().hex}"
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["aws_endpoint"],
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key=SECRET,
    )
    partitions = []
    for day in ("2024-01-01", "a b/c"):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": [len(partitions)]}), sink)
        key = f"{prefix}/day={quote(day, safe='')}"
        client.put_object(Bucket="metastore", Key=f"{key}/x.parquet", Body=sink.getvalue())
        partitions.append(((day,), f"s3://metastore/{key}"))
    table = files("t", f"s3a://metastore/{prefix}/", partition_columns=[("day", "string")], partitions=partitions)
    glue.register(table)
    more = {"s3.endpoint": glue.endpoint, "client.access-key-id": "key", "client.secret-access-key": SECRET}
    catalog = CatalogConfig.model_validate({**glue.properties, **more, "s3.region": "us-east-1", "name": "prod"})
    config = glue.table("t").model_copy(update={"catalog": catalog})
    assert sorted(read_rows(open_table_format(config).snapshot())) == [(0, "2024-01-01"), (1, "a b/c")]
    elsewhere = config.model_copy(update={"storage_options": {"aws_endpoint": "http://127.0.0.1:1"}})
    with pytest.raises(TableFormatError, match=r"catalog://prod/.*\.t: .*\blisted\b"):
        open_table_format(elsewhere).snapshot()


@pytest.mark.parametrize("kind", ["delta", "files"])
def test_an_unsupported_object_store_is_refused(glue: Glue, kind: str) -> None:
    table = delta("t", "hdfs://node:8020/x") if kind == "delta" else files("t", "hdfs://node:8020/x")
    with pytest.raises(MetastoreError, match=r"catalog://prod/.*\.t.*hdfs://node:8020/x"):
        glue.snapshot(table)


def test_a_table_name_without_a_database_is_refused(glue: Glue) -> None:
    table = glue.table("t").model_copy(update={"identifier": "orders"})
    with pytest.raises(MetastoreError, match="table = 'orders'"):
        open_table_format(table).current()


def _write(folder: Path, *numbers: int) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(numbers, pa.int64())}), folder / "000000_0")
    return str(folder)


_DAY = (("day", "date"), ("n", "int"))


def test_only_registered_partitions_are_rows(glue: Glue, tmp_path: Path) -> None:
    """Only registered partitions are read.

    The folders of partitions may be anywhere below the table's folder.

    The values and types of partition columns come from the catalog, which has null as `__HIVE_DEFAULT_PARTITION__`.
    """
    root = tmp_path / "t"
    _write(root / "day=2024-01-01" / "n=1", 99)  # dropped from the catalog, but still on disk
    _write(root, 98)
    partitions = [
        (("2024-01-02", "7"), _write(root / "day=2024-01-02" / "n=07", 1, 2)),
        (("2024-01-03", "__HIVE_DEFAULT_PARTITION__"), _write(root / "added by hand", 3)),
        (("2024-01-04", "1"), str(root / "day=2024-01-04" / "n=1")),
    ]
    snapshot = glue.snapshot(files("t", str(root), partition_columns=_DAY, partitions=partitions))
    assert snapshot.partition_columns == ("day", "n")
    assert {field.name: field.type for field in snapshot.schema} == {
        "id": pa.int64(),
        "day": pa.date32(),
        "n": pa.int64(),
    }
    keys = [fragment.partition_key for fragment in snapshot.fragments]
    assert keys == ["day=2024-01-02/n=7", "day=2024-01-03/n=__HIVE_DEFAULT_PARTITION__"]
    assert [(row[0], str(row[1]), row[2]) for row in read_rows(snapshot)] == [
        (1, "2024-01-02", 7),
        (2, "2024-01-02", 7),
        (3, "2024-01-03", None),
    ]


@pytest.mark.parametrize(
    "partitions", [{"day": ["2024-01-02"]}, "day >= date '2024-01-02' and n < 10"], ids=["patterns", "condition"]
)
def test_partitions_are_chosen_by_their_values(glue: Glue, tmp_path: Path, partitions: object) -> None:
    """A partition filter is applied to the values in the catalog, not to the names of folders."""
    root = tmp_path / "t"
    glue_partitions = [
        (("2024-01-01", "9"), _write(root / "first", 1)),
        (("2024-01-02", "9"), _write(root / "second", 2)),
    ]
    snapshot = glue.snapshot(
        files("t", str(root), partition_columns=_DAY, partitions=glue_partitions), partitions=partitions
    )
    assert [row[0] for row in read_rows(snapshot)] == [2]


def test_added_and_dropped_partitions_are_listed(glue: Glue, tmp_path: Path) -> None:
    """An opened table reads an added partition.

    After the partition is dropped, the table has its earlier reference.
    """
    root, day = tmp_path / "t", (("day", "string"),)
    first, second = (_write(root / f"day={name}", number) for number, name in enumerate("ab"))
    table = glue.open(files("t", str(root), partition_columns=day, partitions=[(("a",), first)]))
    before = table.current()
    assert read_rows(table.snapshot()) == [(0, "a")]
    glue.client.create_partition(
        DatabaseName=glue.database,
        TableName="t",
        PartitionInput={"Values": ["b"], "StorageDescriptor": {"Location": second}},
    )
    assert table.current() != before
    assert read_rows(table.snapshot()) == [(0, "a"), (1, "b")]
    glue.client.delete_partition(DatabaseName=glue.database, TableName="t", PartitionValues=["b"])
    assert table.current() == before


def test_an_open_table_follows_a_new_location_or_format(glue: Glue, tmp_path: Path) -> None:
    table = glue.open(files("t", _write(tmp_path / "old", 1)))
    assert read_rows(table.snapshot()) == [(1,)]
    deltalake.write_deltalake(str(tmp_path / "new"), pa.table({"id": [2]}))
    glue.client.delete_table(DatabaseName=glue.database, Name="t")
    with pytest.raises(TableNotFoundError, match=rf"'prod'.*'{glue.database}\.t'"):
        table.current()
    glue.register(delta("t", f"file:{tmp_path / 'new'}"))
    assert table.current().id == "0"
    assert (table.snapshot().format, read_rows(table.snapshot())) == ("delta", [(2,)])


@pytest.mark.parametrize(
    ("partitions", "reason"),
    [
        ([(("a",), "ELSEWHERE")], r"\bpartition a\b.*elsewhere"),
        ([(("a",), "s3://other/x")], r"s3://other/x"),
        ([(("a",), "OWN/x"), (("b",), "OWN/x")], r"partitions.*'x'"),
        ([(("a",), "OWN/x"), (("b",), "OWN/x/y")], r"partition.*'x'"),
        ([(("a",), "OWN"), (("b",), "OWN/x")], "partition"),
        ([(("a", "b"), "OWN/x")], r"\b2 values\b.*\ba, b\b.*\b1 partition"),
    ],
)
def test_partitions_with_missing_or_repeated_rows_are_refused(
    glue: Glue, tmp_path: Path, partitions: list[tuple[tuple[str, ...], str]], reason: str
) -> None:
    root, elsewhere = _write(tmp_path / "t" / "x", 1).removesuffix("/x"), _write(tmp_path / "elsewhere", 2)
    glue_partitions = [
        (values, partition_folder.replace("OWN", root).replace("ELSEWHERE", elsewhere).replace("//x", "/x"))
        for values, partition_folder in partitions
    ]
    with pytest.raises(TableFormatError, match=reason) as error_info:
        glue.snapshot(files("t", root, partition_columns=[("day", "string")], partitions=glue_partitions))
    assert str(error_info.value).startswith(f"catalog://prod/{glue.database}.t: ") or "catalog 'prod'" in str(
        error_info.value
    )


def test_a_partition_value_of_another_type_is_refused(glue: Glue, tmp_path: Path) -> None:
    partition_folder = _write(tmp_path / "t" / "x", 1)
    table = files("t", str(tmp_path / "t"), partition_columns=[("n", "int")], partitions=[(("1_0",), partition_folder)])
    with pytest.raises(TableFormatError, match=r"n = '1_0'.*int64"):
        glue.snapshot(table)


_VIEW = Declaration("t", "", kind="VIRTUAL_VIEW")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (_VIEW, r"'t'.*\bview\b"),
        (iceberg("t", "x").replaced(parameters={"table_type": "ICEBERG"}), "metadata_location"),
        (files("t", "/x").replaced(parameters={"storage_handler": "org.x.HBase"}), r"org\.x\.HBase"),
        (files("t", "/x").replaced(parameters={"transactional": "true"}), "transactional"),
        (files("t", "/x").replaced(parameters={"projection.enabled": "TRUE"}), r"project.*`uri`"),
        (files("t", "/x").replaced(input_format="a.SymlinkTextInputFormat"), "list of files"),
        (
            files("t", "/x").replaced(input_format="a.B", serde="c.RegexSerDe"),
            r"c\.RegexSerDe",
        ),
        (files("t", "/x").replaced(input_format="", serde=""), "serde"),
        (files("t", ""), r"location.*'t'"),
        (files("t", "/x").replaced(parameters={"spark.sql.sources.provider": "JDBC"}), "'jdbc'"),
        (
            hudi("t_ro", "/x").replaced(serde_parameters={"hoodie.query.as.ro.table": "true"}),
            "'t_rt'",
        ),
        (files("t", "/x", "text", serde_parameters={"line.delim": "x"}), "line.delim = 'x'"),
        (files("t", "/x", "text", parameters={"skip.header.line.count": "2"}), "header"),
        (files("t", "/x", "text", columns=[("a", "array<int>")]), r"'a'.*array<int>"),
        (files("t", "/x", "json", serde_parameters={"mapping.a": "b"}), r"mapping\.a = 'b'"),
    ],
)
def test_unreadable_tables_are_refused(glue: Glue, table: Declaration, reason: str) -> None:
    """The error for a table that cannot be read has the catalog's name and the reason."""
    with pytest.raises(TableFormatError, match=f"'prod'.*{reason}"):
        glue.snapshot(table)


@pytest.mark.parametrize(
    ("parameters", "options", "reason"),
    [
        ({}, {"comment": "#"}, "comment = '#'"),
        ({}, {"mode": "DROPMALFORMED"}, "DROPMALFORMED"),
        ({"spark.sql.sources.schema": "{"}, {}, r"spark\.sql\.sources\.schema"),
    ],
)
def test_unknown_options_of_spark_are_refused(
    glue: Glue, parameters: dict[str, str], options: dict[str, str], reason: str
) -> None:
    table = files("t", "/x", "text", parameters={"spark.sql.sources.provider": "csv"} | parameters)
    with pytest.raises(TableFormatError, match=reason):
        glue.snapshot(table.replaced(serde_parameters=options))


_TEXT_COLUMNS = [("Name", "string"), ("count", "int"), ("day", "date"), ("share", "decimal(4,2)")]


def _typed(glue: Glue, table: Declaration) -> tuple[dict[str, str], list[tuple[object, ...]]]:
    snapshot = glue.snapshot(table)
    return {field.name: str(field.type) for field in snapshot.schema}, read_rows(snapshot)


def test_text_is_read_as_by_hive(glue: Glue, tmp_path: Path) -> None:
    r"""Columns of a text file are assigned by position, with the declared names and types.

    `\N` is null. An empty value is an empty text in a column of texts, and null in other columns.
    """
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "000000_0").write_text('"a\x011\x012024-01-31\x010.50\n\x01\x01\x01\n\\N\x01\\N\x01\\N\x01\\N\n')
    (tmp_path / "t" / "more.txt").write_text("007\x01007\x01\x01\n")
    types, rows = _typed(glue, files("t", str(tmp_path / "t"), "text", columns=_TEXT_COLUMNS))
    assert types == {"Name": "string", "count": "int32", "day": "date32[day]", "share": "decimal128(4, 2)"}
    plain = [tuple(None if value is None else str(value) for value in row) for row in rows]
    assert sorted(plain, key=repr) == sorted(
        [('"a', "1", "2024-01-31", "0.50"), ("", None, None, None), (None,) * 4, ("007", "7", None, None)], key=repr
    )


def test_csv_is_read_as_by_hive_and_spark(glue: Glue, tmp_path: Path) -> None:
    """A declared header is skipped, whatever it contains.

    An empty value is an empty text in a table of Hive, and null in one of Spark.
    """
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.csv").write_text('x;y\n"a;\\"b";1\n;2\n')
    columns = [("name", "string"), ("n", "bigint")]
    hive = files(
        "t",
        str(tmp_path / "t"),
        "csv",
        columns=columns,
        parameters={"skip.header.line.count": "1"},
        serde_parameters={"separatorChar": ";"},
    )
    assert _typed(glue, hive) == ({"name": "string", "n": "int64"}, [('a;"b', 1), ("", 2)])
    spark = files(
        "spark",
        "/nowhere",
        "text",
        columns=[("col", "array<string>")],
        parameters={
            "spark.sql.sources.provider": "csv",
            "spark.sql.sources.schema.numParts": "2",
            "spark.sql.sources.schema.part.0": '{"type":"struct","fields":[{"name":"name","type":"string"},',
            "spark.sql.sources.schema.part.1": '{"name":"n","type":"long"}]}',
        },
        serde_parameters={"header": "true", "sep": ";", "path": str(tmp_path / "t")},
    )
    assert _typed(glue, spark) == ({"name": "string", "n": "int64"}, [('a;"b', 1), (None, 2)])


def test_a_file_that_contradicts_its_declaration_is_refused(glue: Glue, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.csv").write_text("a,b\n")
    with pytest.raises(TableFormatError, match=r"x\.csv.*'csv'.*options\.kind.*'parquet'"):
        glue.snapshot(files("t", str(tmp_path / "t")))
    table = files("u", str(tmp_path / "t"), "text", serde_parameters={"field.delim": ","})
    with pytest.raises(TableFormatError, match=r"\b2 columns.*options\.columns.*\b1\b"):
        glue.snapshot(table)


def test_the_configuration_has_priority_over_the_catalog(glue: Glue, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.csv").write_text("1;2\n")
    columns = [("a", "string"), ("b", "string")]
    glue.register(files("t", str(tmp_path / "t"), "text", columns=columns))
    config = glue.table("t", options={"delimiter": ";"}, schema={"a": "int"})
    assert read_rows(open_table_format(config).snapshot()) == [(1, "2")]
    with pytest.raises(MetastoreError, match=r"format = 'delta'.*'files'"):
        open_table_format(glue.table("t", format="delta")).snapshot()
    with pytest.raises(MetastoreError, match=r"options\.template = '\{a\}'"):
        open_table_format(glue.table("t", options={"template": "{a}"})).snapshot()


def test_errors_of_a_catalog_name_the_table_and_show_no_secrets(
    glue: Glue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error of a catalog that cannot be used names the catalog and the table, and has no secret.

    It also has the reason: the endpoint does not answer, or the AWS profile does not exist. Without any credentials,
    the error has the catalog and the reason.
    """
    table = glue.table("t")
    for properties, reason in (
        ({"glue.endpoint": "http://127.0.0.1:1", "glue.max-retries": "1"}, "Could not connect to the endpoint"),
        ({"glue.profile-name": "nobody"}, r"profile \(nobody\).*Give it credentials"),
    ):
        catalog = table.catalog.model_copy(update=properties)  # type: ignore[union-attr]
        with pytest.raises(TableFormatError, match=f"'prod'.*'.*t'.*{reason}") as error_info:
            open_table_format(table.model_copy(update={"catalog": catalog})).current()
        assert SECRET not in str(error_info.value)
        assert "catalogs.prod" in str(error_info.value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    without = {key: value for key, value in glue.properties.items() if "key" not in key}
    catalog = type(table.catalog).model_validate({**without, "name": "prod"})  # type: ignore[union-attr]
    with pytest.raises(TableFormatError, match=r"'prod'.*Unable to locate credentials"):
        open_table_format(table.model_copy(update={"catalog": catalog})).current()
