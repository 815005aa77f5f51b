"""`partitions:`, `backfill --where` and `prune --where` select the same partitions.

This holds for all types and formats. The oracle is plain Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import (
    ColumnNotFoundError,
    LiteralError,
    PartitionNotFoundError,
    TableFormatError,
    TableNotFoundError,
)
from metastore_assets.formats import Snapshot, open_table_format
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.backfill_plan import BackfillSelection
from metastore_assets.pipeline.refresh import refresh
from tests.expressions.random_predicates import compare_values
from tests.formats.hudi.writer import HudiWriter

COLUMN = "Part"
INTEGERS = [5, 7, 50, -3, 0, None]
FLOATS = [5.0, 0.1, -2.5, 1e10, math.nan, math.inf, None]
DATES = [date(2024, 1, 31), date(2024, 2, 1), date(1969, 12, 31), date(999, 1, 1), None]
TIMES = [datetime(2024, 1, 31, 23, 59, 59, 5), datetime(2024, 2, 1), datetime(1969, 12, 31, 12), None]
ZONED = [moment and moment.replace(tzinfo=UTC) for moment in TIMES]
DECIMALS = [Decimal("5.00"), Decimal("7.50"), Decimal("50.00"), Decimal("0.01"), None]
TEXTS = ["5", "7", "50", "ä", "a b", "A", "2024-01-31", "100%", "a'b", "\N{GRINNING FACE}", None]
BYTES = [b"\x00", b"\x00\xff", b"a", None]
BOOLEANS = [True, False, None]

Values = list[Any]
Node = tuple[Any, ...]


def write_delta(folder: Path, type_: pa.DataType, values: Values) -> None:
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), COLUMN: pa.array(values, type_)})
    write_deltalake(str(folder), rows, partition_by=[COLUMN])


def write_iceberg(folder: Path, type_: IcebergType, values: Values, transform: Transform[Any, Any]) -> None:
    catalog = InMemoryCatalog("c", warehouse=str(folder.parent))
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "c", type_))
    spec = PartitionSpec(PartitionField(2, 1000, transform, COLUMN))
    if isinstance(transform, IdentityTransform):
        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, COLUMN, type_))
    table = catalog.create_table("db.t", schema, location=str(folder), partition_spec=spec)
    arrow = schema.as_arrow()
    ids = pa.array(range(len(values)), pa.int64())
    table.append(pa.table([ids, pa.array(values, arrow.field(1).type)], names=arrow.names))


def write_hudi(folder: Path, avro: Any, values: Values, parquet: pa.DataType | None) -> None:
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": ["null", "long"], "default": None},
        {"name": COLUMN, "type": ["null", avro], "default": None},
    ]
    writer = HudiWriter(folder, by_commit=True, fields=fields, key="id", partition_field=COLUMN)
    writer.set_properties(**{"hoodie.datasource.write.partitionpath.urlencode": "true"})
    if parquet is not None:
        writer.types[COLUMN] = parquet
    instant = writer.tick()
    writer.request(instant, "commit")
    stats = []
    for number, value in enumerate(values):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        one = writer.new_slice("__HIVE_DEFAULT_PARTITION__" if value is None else text, instant)
        stats.append(writer.base_file(one, instant, [{"id": number, COLUMN: value}]))
    writer.complete(instant, "commit", stats)


def write_folders(folder: Path, values: Values) -> None:
    for number, value in enumerate(values):
        text = "__HIVE_DEFAULT_PARTITION__" if value is None else str(value).replace("%", "%25")
        part = folder / f"{COLUMN}={text}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), part / "0.parquet")


Write = Callable[[Path, Values], None]


def delta(type_: pa.DataType, values: Values) -> tuple[Write, Values, dict[str, Any]]:
    return lambda folder, partition_values: write_delta(folder, type_, partition_values), values, {}


def iceberg(
    type_: IcebergType, values: Values, transform: Transform[Any, Any] | None = None
) -> tuple[Write, Values, dict[str, Any]]:
    return (
        lambda folder, partition_values: write_iceberg(
            folder, type_, partition_values, transform or IdentityTransform()
        ),
        values,
        {},
    )


def hudi(avro: Any, values: Values, parquet: pa.DataType | None = None) -> tuple[Write, Values, dict[str, Any]]:
    return lambda folder, partition_values: write_hudi(folder, avro, partition_values, parquet), values, {}


def files(values: Values, template: str | None = None) -> tuple[Write, Values, dict[str, Any]]:
    return write_folders, values, {"options": {"template": template}} if template else {}


def singles(values: Values) -> Values:
    return [None if value is None else float(np.float32(value)) for value in values]


TABLES: dict[str, tuple[Write, Values, dict[str, Any]]] = {
    "delta int8": delta(pa.int8(), INTEGERS),
    "delta int32": delta(pa.int32(), INTEGERS),
    "delta int64": delta(pa.int64(), [*INTEGERS, 2**63 - 1, 2**53 + 1]),
    "delta float32": delta(pa.float32(), singles(FLOATS)),
    "delta float64": delta(pa.float64(), FLOATS),
    "delta decimal": delta(pa.decimal128(9, 2), DECIMALS),
    "delta date": delta(pa.date32(), DATES),
    "delta timestamp": delta(pa.timestamp("us", "UTC"), ZONED),
    "delta timestamp_ntz": delta(pa.timestamp("us"), TIMES),
    "delta string": delta(pa.string(), TEXTS),
    "delta boolean": delta(pa.bool_(), BOOLEANS),
    "iceberg int": iceberg(IntegerType(), INTEGERS),
    "iceberg long": iceberg(LongType(), INTEGERS),
    "iceberg float": iceberg(FloatType(), singles(FLOATS[:4] + FLOATS[6:])),
    "iceberg double": iceberg(DoubleType(), FLOATS[:4] + FLOATS[6:]),
    "iceberg decimal": iceberg(DecimalType(9, 2), DECIMALS),
    "iceberg date": iceberg(DateType(), DATES),
    "iceberg timestamp": iceberg(TimestampType(), TIMES),
    "iceberg timestamptz": iceberg(TimestamptzType(), ZONED),
    "iceberg string": iceberg(StringType(), TEXTS),
    "iceberg boolean": iceberg(BooleanType(), BOOLEANS),
    "iceberg binary": iceberg(BinaryType(), BYTES),
    "hudi int": hudi("int", INTEGERS),
    "hudi long": hudi("long", INTEGERS),
    "hudi string": hudi("string", ["5", "7", "50", "A", None]),
    "hudi boolean": hudi("boolean", BOOLEANS),
    "hudi date": hudi({"type": "int", "logicalType": "date"}, DATES[:3], pa.date32()),
    "files": files(TEXTS[:8]),
    "files template int": files([5, 7, 50, -3], "Part={Part:int}"),
    "files template date": files(DATES[:3], "Part={Part:date}"),
    "files template text": files(["5", "7", "50"], "Part={Part}"),
}


def spellings(value: Any) -> list[str]:
    """Return the ways to write a value as a literal."""
    if value is None:
        return ["null"]
    if isinstance(value, bool):
        return [str(value).lower(), f"'{value}'"]
    if isinstance(value, int):
        return [str(value), f"'{value}'", f"{value}.0", f"'{value:+05d}'"]
    if isinstance(value, float):
        return [f"'{value!r}'", *([f"{Decimal(value):f}"] if math.isfinite(value) else [])]
    if isinstance(value, Decimal):
        return [str(value), f"'{value}'", f"'{value:.5f}'"]
    if isinstance(value, datetime):
        text = value.isoformat()
        return [f"'{text}'", f"timestamp '{text.replace('T', ' ')}'"]
    if isinstance(value, date):
        return [f"'{value.isoformat()}'", f"date '{value.isoformat()}'"]
    if isinstance(value, bytes):
        return [f"x'{value.hex()}'", f"'{value.hex().upper()}'"]
    return ["'" + str(value).replace("'", "''") + "'"]


def near(value: Any) -> list[Any]:
    """Return values that are close to a value, and which no partition has."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int):
        return [value + 1, Decimal(value) + Decimal("0.5"), 10, 2**70]
    if isinstance(value, float):
        return [0.10000000000000002, 6.0] if math.isfinite(value) else []
    if isinstance(value, Decimal):
        return [value + Decimal("0.001"), Decimal(10)]
    if isinstance(value, str):
        return ["10", value + "a", ""]
    return [date(2024, 1, 30)] if isinstance(value, date) and not isinstance(value, datetime) else []


def conditions(values: Values) -> st.SearchStrategy[Node]:
    """Draw conditions on values of one type, as trees.

    A literal is a pair of its value and its spelling.
    """
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    literals = st.sampled_from([*values, *(neighbour for value in values for neighbour in near(value))]).flatmap(
        lambda value: st.tuples(st.just(value), st.sampled_from(spellings(value)))
    )
    names = st.sampled_from([COLUMN, COLUMN.lower(), COLUMN.upper(), f'"{COLUMN}"'])
    leaves = [
        st.tuples(operators, names, literals),
        st.tuples(st.just("in"), names, st.lists(literals, min_size=1, max_size=3)),
        st.tuples(st.just("between"), names, literals, literals),
        st.tuples(st.just("null"), names),
    ]
    if isinstance(values[0], str):
        leaves.append(st.tuples(st.just("like"), names, st.sampled_from(["5%", "_", "a%b", "A", "%", "100\\%"])))
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        ),
        max_leaves=4,
    )


def sql(node: Node) -> str:
    """Return a condition as SQL."""
    kind = node[0]
    if kind == "not":
        return f"not ({sql(node[1])})"
    if kind in ("and", "or"):
        return f" {kind} ".join(f"({sql(child)})" for child in node[1])
    if kind == "null":
        return f"{node[1]} is null"
    if kind == "in":
        return f"{node[1]} in ({', '.join(spelt for _, spelt in node[2])})"
    if kind == "between":
        return f"{node[1]} between {node[2][1]} and {node[3][1]}"
    return f"{node[1]} like '{node[2]}'" if kind == "like" else f"{node[1]} {kind} {node[2][1]}"


def holds(node: Node, value: Any) -> bool | None:
    """Evaluate a condition on a partition value by SQL's three-valued logic in plain Python.

    None stands for null.
    """
    kind = node[0]
    if kind == "not":
        inner = holds(node[1], value)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        return joined(kind == "or", [holds(child, value) for child in node[1]])
    if kind == "null":
        return value is None
    if kind == "in":
        return joined(True, [compare_values("=", value, literal) for literal, _ in node[2]])
    if kind == "between":
        return joined(False, [compare_values(">=", value, node[2][0]), compare_values("<=", value, node[3][0])])
    if kind == "like":
        return None if value is None else like(node[2], value)
    return compare_values(kind, value, node[2][0])


def joined(decisive: bool, results: Sequence[bool | None]) -> bool | None:
    return decisive if decisive in results else None if None in results else not decisive


def like(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern of SQL's `like`, whose escape character is a backslash."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(pattern[1:], text[at:]) for at in range(len(text) + 1))
    if pattern[0] == "\\":
        return text[:1] == pattern[1] and like(pattern[2:], text[1:])
    return bool(text) and pattern[0] in ("_", text[0]) and like(pattern[1:], text[1:])


def no_spark() -> Any:
    raise AssertionError("Spark was started for small work")


def keys_of(snapshot: Snapshot) -> set[str]:
    return {fragment.partition_key for fragment in snapshot.fragments}


class Lake:
    """The table `name` of `TABLES`, and its first version.

    The table has one partition, of one row, for each value in `values`.
    """

    def __init__(self, name: str, folder: Path) -> None:
        write, self.values, self.options = TABLES[name]
        self.folder = folder / "lake" / "t"
        self.folder.parent.mkdir(parents=True)
        write(self.folder, self.values)
        config = MetastoreConfig.model_validate(
            {"root": str(folder / "root"), "tables": [self._entry()], "engine": "auto"}
        )
        refresh(config, config.tables[0], no_spark)
        self.published = open_table(config.root, "t")
        self.snapshot = open_table_format(self.table()).snapshot()
        self.keys = [
            entry.partition_key
            for n in range(len(self.values))
            for entry in self.published.prune(f"id = {n}").fragments
        ]
        """The key of the partition that has each value."""

    def _entry(self, **more: Any) -> dict[str, Any]:
        return {"name": "t", "uri": str(self.folder), **self.options, **more}

    def table(self, **more: Any) -> TableConfig:
        return TableConfig.model_validate(self._entry(**more))

    def configured(self, condition: str) -> set[str]:
        try:
            snapshot = open_table_format(self.table(partitions=condition)).snapshot()
        except TableNotFoundError:  # plain files without a selected partition are no table
            return set()
        return {fragment.partition_key for fragment in snapshot.fragments}

    def chosen(self, condition: str) -> set[str]:
        try:
            return set(
                BackfillSelection("all", where=condition).select_keys("t", self.snapshot, keys_of(self.snapshot))
            )
        except PartitionNotFoundError:
            return set()

    def pruned(self, condition: str) -> set[str]:
        return {fragment.partition_key for fragment in self.published.prune(condition).fragments}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Lake]:
    return cache(lambda name: Lake(name, tmp_path_factory.mktemp("lake")))


@pytest.mark.parametrize("name", TABLES)
@given(data=st.data())
@settings(max_examples=max(5, settings().max_examples // 3))
def test_a_condition_selects_the_same_partitions_in_every_format(
    lakes: Callable[[str], Lake], name: str, data: st.DataObject
) -> None:
    lake = lakes(name)
    assert len({*lake.keys}) == len(lake.values)
    node = data.draw(conditions(lake.values))
    expected_keys = {key for key, value in zip(lake.keys, lake.values, strict=True) if holds(node, value)}
    condition = sql(node)
    assert lake.configured(condition) == expected_keys, condition
    assert lake.chosen(condition) == expected_keys, condition
    assert lake.pruned(condition) == expected_keys, condition


MOMENTS = [datetime(2024, 1, 31, 23, 30), datetime(2024, 2, 1, 8), datetime(2025, 1, 1), None]
HIDDEN: dict[str, tuple[IcebergType, Values, Transform[Any, Any], list[tuple[str, list[int]]]]] = {
    "year": (
        TimestampType(),
        MOMENTS,
        YearTransform(),
        [("part < 2025", [0, 1]), ("Part = '2025'", [2]), ("Part is null", [3])],
    ),
    "month": (
        TimestampType(),
        MOMENTS,
        MonthTransform(),
        [("part < '2024-02'", [0]), ("Part like '2024-%'", [0, 1]), ("part != '2024-02'", [0, 2])],
    ),
    "day": (
        TimestampType(),
        MOMENTS,
        DayTransform(),
        [("part < date '2024-02-01'", [0]), ("PART between '2024-02-01' and '2024-12-31'", [1])],
    ),
    "hour": (
        TimestampType(),
        MOMENTS,
        HourTransform(),
        [("part <= '2024-02-01-08'", [0, 1]), ("not (part <= '2024-02-01-08')", [2])],
    ),
    "bucket": (LongType(), [1, None], BucketTransform(1), [("part = 0", [0]), ("part < '1'", [0]), ("part > 0.5", [])]),
    "truncate": (
        IntegerType(),
        [5, 17, -1, None],
        TruncateTransform(10),
        [("part < '6'", [0, 2]), ("part = '010'", [1]), ("part in (-10, null)", [2])],
    ),
    "truncate text": (
        StringType(),
        ["abc", "b", None],
        TruncateTransform(1),
        [("part < 'b'", [0]), ("part like '_'", [0, 1])],
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_partition_values_have_the_type_of_their_transform(tmp_path: Path, name: str) -> None:
    type_, values, transform, conditions = HIDDEN[name]
    folder = tmp_path / "lake" / "t"
    write_iceberg(folder, type_, values, transform)
    entry = {"name": "t", "uri": str(folder)}
    config = MetastoreConfig.model_validate({"root": str(tmp_path / "root"), "tables": [entry], "engine": "auto"})
    refresh(config, config.tables[0], no_spark)
    published_table = open_table(config.root, "t")
    keys = [published_table.prune(f"id = {number}").fragments[0].partition_key for number in range(len(values))]
    snapshot = open_table_format(config.tables[0]).snapshot()
    for condition, expected_numbers in conditions:
        expected_keys = {keys[number] for number in expected_numbers}
        table = TableConfig.model_validate(entry | {"partitions": condition})
        filtered_snapshot = open_table_format(table).snapshot()
        assert {fragment.partition_key for fragment in filtered_snapshot.fragments} == expected_keys, condition
        assert filtered_snapshot.partition_types == snapshot.partition_types
        try:
            assert (
                set(BackfillSelection("all", where=condition).select_keys("t", snapshot, keys_of(snapshot)))
                == expected_keys
            ), condition
        except PartitionNotFoundError:
            assert not expected_keys, condition


@pytest.mark.parametrize(
    ("name", "condition", "message"),
    [
        ("delta int64", "part < 'ten'", r"'ten'.*'Part'"),
        ("delta date", "part = 'x'", r"'x'.*'Part'"),
        ("iceberg int", "part = 'x'", r"'x'.*'Part'"),
        ("hudi long", "part = 'x'", r"'x'.*'Part'"),
        ("files", "part < 10", r"\b10\b.*'[Pp]art'.*'t'"),
        ("files template int", "part = 'x'", r"'x'.*'Part'"),
    ],
)
def test_a_literal_of_another_type_is_refused_everywhere(
    lakes: Callable[[str], Lake], name: str, condition: str, message: str
) -> None:
    lake = lakes(name)
    for ask in (lake.configured, lake.chosen, lake.pruned):
        with pytest.raises(LiteralError, match=message):
            ask(condition)


def test_templates_give_folder_names_number_types(lakes: Callable[[str], Lake]) -> None:
    """Comparing a value in a folder name with a number is an error that suggests a template.

    Such values are texts. A template that declares the type `int` makes them numbers.
    """
    with pytest.raises(LiteralError, match=r"options\.template"):
        lakes("files").configured("part < 10")
    lake = lakes("files template int")
    assert lake.configured("part < 10") == {"Part=5", "Part=7", "Part=-3"}


def test_names_that_differ_only_in_case_are_ambiguous(tmp_path: Path) -> None:
    part = tmp_path / "t" / "day=1" / "DAY=2"
    part.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), part / "0.parquet")
    entry = {"name": "t", "uri": str(tmp_path / "t")}
    snapshot = open_table_format(TableConfig.model_validate(entry)).snapshot()
    for condition, expected_count in (("day = '1'", 1), ("DAY = '2'", 1), ("DAY = '1'", 0)):
        table = open_table_format(TableConfig.model_validate(entry | {"partitions": condition}))
        try:
            result = len(table.snapshot().fragments)
        except TableNotFoundError:
            result = 0
        assert result == expected_count, condition
    with pytest.raises(TableFormatError, match="'Day'"):
        open_table_format(TableConfig.model_validate(entry | {"partitions": "Day = '1'"})).snapshot()
    with pytest.raises(ColumnNotFoundError, match="'Day'"):
        BackfillSelection("all", where="Day = '1'").select_keys("t", snapshot, keys_of(snapshot))


def test_a_partition_filter_limits_the_published_partitions(lakes: Callable[[str], Lake], tmp_path: Path) -> None:
    """Partitions that do not match `partitions` are not published."""
    lake = lakes("delta int64")
    table = {"name": "t", "uri": str(lake.folder), "partitions": "part <= '6'"}
    config = MetastoreConfig.model_validate({"root": str(tmp_path), "tables": [table], "engine": "auto"})
    refresh(config, config.tables[0], no_spark)
    assert {partition.key for partition in open_table(config.root, "t").partitions()} == {"Part=5", "Part=-3", "Part=0"}
