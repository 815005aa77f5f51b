"""Counts for `in` on a nested timestamp are correct, also after files were added, rewritten or moved.

The literals are spelled differently: with other time zones, or with a space or a `T` before the time.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import MetastoreConfig
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.values.columns import schema_columns

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
NAMES = [('a"b', "c"), ("it's", "x`y"), ("q", '"c"'), ("s", "t.u")]


def no_spark() -> Any:
    raise AssertionError("nothing here is worth a session")


def spelled(chance: random.Random, nanoseconds: int, zone: int | None) -> str:
    """Format an instant as a literal.

    `zone` is the offset from UTC in minutes; with None, the literal has no offset.
    """
    seconds, rest = divmod(nanoseconds + (zone or 0) * 60 * 10**9, 10**9)
    text = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat(sep=chance.choice(" T"))
    text += f".{rest:09d}" if rest else ""
    if zone is not None:
        text += f"{'+' if zone >= 0 else '-'}{abs(zone) // 60:02d}:{abs(zone) % 60:02d}"
    return chance.choice([f"'{text}'", f"timestamp '{text}'"])


class Lake:
    """A Delta table, or plain files whose timestamps have different units."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance = chance
        self.folder = folder / "t"
        self.folder.mkdir(parents=True)
        self.is_delta = chance.random() < 0.4
        self.zone = chance.choice([None, "UTC"])
        self.names = chance.choice(NAMES)
        unit = "us" if self.is_delta else chance.choice([*NANOSECONDS])
        times = [0, -1, 999_999, 5 * 10**6, -(10**9), chance.randrange(10**18), chance.randrange(-(2**55), 2**60)]
        self.pool = [time // NANOSECONDS[unit] * NANOSECONDS[unit] for time in times]
        self.values: list[int | None] = []
        """The timestamps of all rows, in nanoseconds since 1970."""
        self.schema: pa.Schema | None = None

    def append(self) -> None:
        values = [self.chance.choice([*self.pool, None]) for _ in range(self.chance.randint(1, 5))]
        units = [
            unit
            for unit, nanoseconds in NANOSECONDS.items()
            if not any(value % nanoseconds for value in values if value)
        ]
        unit = "us" if self.is_delta else self.chance.choice(units)
        ticks = pa.array([None if value is None else value // NANOSECONDS[unit] for value in values], pa.int64())
        inner = ticks.view(pa.timestamp(unit, self.zone))
        struct = pa.StructArray.from_arrays([inner, ticks], [self.names[1], "other"])
        rows = pa.table({self.names[0]: struct})
        self.schema = rows.schema
        self.values += values
        if self.is_delta:
            write_deltalake(str(self.folder), rows, mode="append")
        else:
            pq.write_table(rows, self.folder / f"{len(self.values)}.parquet")

    def move(self, how: str) -> None:
        if how == "append":
            self.append()
        elif how == "rewrite" and self.is_delta:
            DeltaTable(str(self.folder)).optimize.compact()
        elif how == "rewrite":
            for file in sorted(self.folder.iterdir()):
                file.rename(self.folder / f"new-{file.name}")
        elif how == "folder":
            self.folder = self.folder.rename(self.folder.parent / "moved")

    def config(self, root: Path, policy: dict[str, str]) -> MetastoreConfig:
        assert self.schema is not None
        path = [column.path for column in schema_columns(self.schema)][1]
        entry = {"name": "t", "uri": str(self.folder), "columns": {path: policy}}
        return MetastoreConfig.model_validate({"root": str(root), "tables": [entry], "engine": "auto"})

    def predicate(self) -> tuple[str, int]:
        """Draw a predicate.

        Return it with the number of rows of which it is true.
        """
        zones = [None, 0, 330, -480] if self.zone else [None]
        result = [self.chance.choice(self.pool) + self.chance.choice([0, 0, 0, 1, 1000]) for _ in range(4)]
        literals = ", ".join(spelled(self.chance, value, self.chance.choice(zones)) for value in result)
        name = ".".join('"' + part.replace('"', '""') + '"' for part in self.names)
        is_negated = self.chance.random() < 0.2
        expected_count = sum((value in result) != is_negated for value in self.values if value is not None)
        return f"{name} {'not ' if is_negated else ''}in ({literals})", expected_count


def check(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    lake = Lake(folder, chance)
    for _ in range(chance.randint(1, 4)):
        lake.append()
    policy = {"frequencies": chance.choice(["all", "off"]), "value_filter": chance.choice(["on", "off"])}
    config = lake.config(folder / "root", policy)
    refresh(config, config.tables[0], no_spark)
    lake.move(chance.choice(["nothing", "append", "rewrite", "folder"]))
    config = lake.config(folder / "root", policy)
    if chance.random() < 0.5:
        refresh(config, config.tables[0], no_spark)
    for _ in range(3):
        predicate, expected_count = lake.predicate()
        assert open_table(config.root, "t").count(predicate, table=config.tables[0]).value == expected_count, predicate


@pytest.mark.parametrize("seed", range(6))
def test_values_of_in_with_different_spellings_are_counted(tmp_path: Path, seed: int) -> None:
    check(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 1100, 100))
def test_values_of_in_with_different_spellings_are_counted_in_many_tables(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 100):
        check(tmp_path / str(seed), seed)
