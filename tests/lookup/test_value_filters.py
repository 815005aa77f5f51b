"""Value filters prune fragments that bounds cannot, and never one that has the value.

A fragment is a data file together with the deletes that apply to it. A value filter is the set of hash prefixes of a
column's values in one fragment. A version has the statistics of one snapshot of the table. The policy of a column
decides which of its statistics and values are stored. A refresh publishes a version for the current snapshot. A purge
removes older versions and the values in their files.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_filters import find_wrong_filters
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore

ZONED = pa.timestamp("us", "Europe/Berlin")
SCHEMA = pa.schema(
    [
        ("integer", pa.int32()),
        ("unsigned", pa.uint64()),
        ("ratio", pa.float64()),
        ("single", pa.float32()),
        ("price", pa.decimal128(30, 4)),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("ns")),
        ("zoned", ZONED),
        ("flag", pa.bool_()),
    ]
)
POLICIES: dict[str, dict[str, Any]] = {
    "enumerated": {"frequencies": "all"},
    "off": {"frequencies": "off"},
    "printed": {"frequencies": "repeated", "algorithm": "fingerprints"},
}
WIDE = [-(2**31), 2**31 - 1]


def no_spark() -> Any:
    raise AssertionError("nothing here is worth a session")


@dataclass
class Folder:
    """A table of files of 21 rows.

    Each file has the least and the greatest values, so that bounds prune nothing.
    """

    path: Path
    columns: Mapping[str, Any]
    tables: dict[str, pa.Table] = field(default_factory=dict)
    number: int = 0

    def append(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            rows = drawn(random.Random(self.number))
            path = self.path / "lake" / f"{self.number:03}.parquet"
            path.parent.mkdir(exist_ok=True, parents=True)
            pq.write_table(rows, path)
            self.tables[str(path)] = rows

    def drop(self, number: int) -> None:
        path = sorted(self.tables)[number]
        Path(path).unlink()
        del self.tables[path]

    @property
    def config(self) -> MetastoreConfig:
        table = TableConfig.model_validate({"name": "t", "uri": str(self.path / "lake"), "columns": dict(self.columns)})
        return MetastoreConfig(root=str(self.path / "root"), engine="auto", tables=[table])

    def refreshed(self) -> Table:
        refresh(self.config, self.config.tables[0], no_spark)
        return open_table(self.config.root, "t")


def drawn(draw: random.Random) -> pa.Table:
    """Return 18 random rows of all types, and a row each of least values, greatest values and nulls."""

    def day() -> date:
        return date(1000, 1, 1) + timedelta(days=draw.randrange(10**6))

    rows = [
        {
            "integer": draw.randrange(*WIDE),
            "unsigned": draw.getrandbits(64),
            "ratio": draw.choice([draw.gauss(0, 1e9), -0.0, math.nan, 1e-300]),
            "single": draw.choice([draw.gauss(0, 1), 0.0, -math.inf]),
            "price": Decimal(draw.randrange(-(10**25), 10**25)).scaleb(-4),
            "text": "ä" * draw.randrange(3) + str(draw.getrandbits(64)) * draw.randrange(12),
            "raw": draw.randbytes(draw.randrange(30)),
            "day": day(),
            "at": draw.getrandbits(62),
            "zoned": datetime(1890, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randrange(4 * 10**15)),
            "flag": draw.random() < 0.5,
        }
        for _ in range(18)
    ]
    years = [datetime(year, 1, 1, tzinfo=UTC) for year in (1700, 2900)]
    texts, days = (["", "\U0010ffff"], [b"", b"\xff" * 40]), [date(1, 1, 1), date(9999, 1, 1)]
    prices = [Decimal(-(10**25)), Decimal(10**25)]
    sides = [WIDE, [0, 2**64 - 1], [-1e308, 1e308], [-3e38, 3e38], prices, *texts, days, [-(2**62), 2**62], years]
    ends = [dict(zip(SCHEMA.names, ends_row, strict=True)) for ends_row in zip(*sides, [False, True], strict=True)]
    records: list[dict[str, Any]] = [*rows, *ends, dict.fromkeys(SCHEMA.names)]
    arrays = [pa.array([record[field.name] for record in records], field.type) for field in SCHEMA]
    return pa.table(arrays, schema=SCHEMA)


def matching_paths(table: Table, column: str, value: pa.Scalar) -> list[str]:
    return table.prune(pc.field(column) == value).paths


def check(folder: Folder, table: Table, columns: list[str], per_file: int) -> float:
    """Check that no file with a value is pruned.

    Return the fraction of the other files that is not pruned.

    Args:
        folder: The table's files.
        table: The version whose pruning is checked.
        columns: The columns whose values are searched.
        per_file: The number of searched values from each file and column.
    """
    draw, read, others = random.Random(1), 0, 0
    for column in columns:
        for rows in folder.tables.values():
            for at in draw.sample(range(20), per_file):
                value = rows[column][at]
                result = set(matching_paths(table, column, value))
                holding = {
                    path for path, rows in folder.tables.items() if pc.any(pc.equal(rows[column], value)).as_py()
                }
                assert holding <= result, (column, value)
                read += len(result - holding)
                others += len(folder.tables) - len(holding)
    for column in ("ratio", "single"):
        nan = {path for path, rows in folder.tables.items() if pc.any(pc.is_nan(rows[column])).as_py()}
        assert nan <= set(table.prune(f"isnan({column}) or {column} = 'NaN'").paths)
    return read / max(1, others)


@pytest.mark.parametrize(
    "policy", [name if name == "off" else pytest.param(name, marks=pytest.mark.long) for name in POLICIES]
)
def test_fragments_with_the_value_are_never_pruned(tmp_path: Path, policy: str) -> None:
    """No file with a value is pruned by value filters, for columns of every type and with every policy.

    This is checked after the first refresh, after files were added and removed, and after a purge. In the end, each
    filter is compared with the values of another file. Verification then reports wrong filters of every column, except
    perhaps of `flag`.
    """
    policy_settings = {**POLICIES[policy], "value_filter": "on"}
    folder = Folder(tmp_path, dict.fromkeys(SCHEMA.names, policy_settings))
    folder.append(5)
    table = folder.refreshed()
    names = [name for name in SCHEMA.names if name != "flag"]
    assert check(folder, table, SCHEMA.names, 2) < 0.2
    assert check(folder, table, [name for name in names if name not in ("ratio", "single", "text", "raw")], 2) < 0.03
    (elimination,) = table.prune(pc.field("price") == next(iter(folder.tables.values()))["price"][3]).explanation
    assert (elimination.statistic, elimination.fragments) == ("value_filter", 4)
    folder.drop(2)
    folder.append(2)
    assert check(folder, folder.refreshed(), SCHEMA.names, 2) < 0.2
    versions = VersionStore(ObjectStore(folder.config.root), "t")
    purge(Engine(no_spark, "auto"), versions, versions.newest())
    assert check(folder, open_table(folder.config.root, "t"), names, 1) < 0.2
    assert verify(folder.config, folder.config.tables[0], no_spark).is_right
    version = versions.latest()
    assert version is not None
    assert version.value_filters is not None
    live = list(version.fragments)
    swapped_entries = {entry.key: other for entry, other in zip(live, reversed(live), strict=True)}
    engine = Engine(no_spark, "auto")
    wrong = find_wrong_filters(engine, versions.objects, versions.objects, version.value_filters, swapped_entries)
    assert {column for _, column in wrong} >= set(names)


def test_each_value_of_a_long_in_list_is_looked_up(tmp_path: Path) -> None:
    """An `in` condition with up to 128 values prunes all files without any of them.

    Conditions with more values prune nothing.
    """
    folder = Folder(tmp_path, {"integer": {"frequencies": "off", "value_filter": "on"}})
    folder.append(5)
    table = folder.refreshed()
    paths = sorted(folder.tables)
    present = [folder.tables[paths[at]]["integer"][row].as_py() for at in (1, 3) for row in (2, 5)]
    draw = random.Random("what no file has")
    absent = [draw.randrange(*WIDE) for _ in range(300)]
    for count in (13, 124, 125):
        result = table.prune(f"integer in ({', '.join(map(str, present + absent[:count]))})").paths
        assert sorted(result) == ([paths[1], paths[3]] if count <= 124 else paths)


def test_value_filters_are_turned_on_and_off(tmp_path: Path) -> None:
    """Adding filters to a column with stored frequencies profiles no file again.

    Filters turned off are removed.
    """
    folder = Folder(tmp_path, {"integer": {"frequencies": "all"}, "price": {"frequencies": "off"}})
    folder.append(4)
    table = folder.refreshed()
    value = next(iter(folder.tables.values()))["integer"][1]
    assert table.version.value_filters is None
    assert len(matching_paths(table, "integer", value)) == 4
    on = {"value_filter": "on"}
    folder.columns = {"integer": {"frequencies": "all", **on}, "price": {"frequencies": "off"}}
    result = refresh(folder.config, folder.config.tables[0], no_spark)
    assert result.fragments_profiled == 0
    table = open_table(folder.config.root, "t")
    assert table.version.value_filters is not None
    assert table.version.value_filters.columns == ("integer",)
    assert len(matching_paths(table, "integer", value)) == 1
    folder.columns = {"price": {"frequencies": "off", **on}}
    table = folder.refreshed()
    assert table.version.value_filters is not None
    assert table.version.value_filters.columns == ("price",)
    assert len(matching_paths(table, "integer", value)) == 4
    assert len(matching_paths(table, "price", next(iter(folder.tables.values()))["price"][1])) == 1
    folder.columns = {}
    assert folder.refreshed().version.value_filters is None


def test_hidden_values_have_no_filters() -> None:
    """A hidden column cannot have `value_filter: on`, and a default of `on` does not apply to it.

    A filter would reveal whether a value exists.
    """
    with pytest.raises(ConfigError, match=r"columns\.card.*`value_filter: on`"):
        TableConfig.model_validate(
            {"name": "t", "uri": "x", "columns": {"card": {"values": "hidden", "value_filter": "on"}}}
        )
    table = TableConfig.model_validate(
        {"name": "t", "uri": "x", "columns": {"default": {"value_filter": "on"}, "card": {"values": "hidden"}}}
    )
    assert not table.effective_policy("card").has_value_filter
    assert table.effective_policy("other").has_value_filter
