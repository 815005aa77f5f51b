"""Cases: Delta tables that readers easily get wrong, each with its expected rows or error."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from scripts.adversarial.case import Columns, Refused, Written, case

COLUMNS: dict[str, list[Any]] = {"id": [1, 2, 3, 4], "s": ["a", None, "b", "a"], "x": [1.5, 2.5, None, 4.5]}


def _delta(folder: Path, **settings: Any) -> DeltaTable:
    write_deltalake(folder, pa.table(COLUMNS), **settings)
    return DeltaTable(folder)


@case("delta/deleted", "deltalake", "deletes and updates, then an optimization")
def _(folder: Path) -> Columns:
    table = _delta(folder)
    table.delete("id = 2")
    table.update({"s": "'z'"}, predicate="id = 3")
    table.optimize.compact()
    return {"id": [1, 3, 4], "s": ["a", "z", "a"], "x": [1.5, None, 4.5]}


@case("delta/checkpoint", "deltalake", "a log with only a checkpoint")
def _(folder: Path) -> Columns:
    table = _delta(folder)
    for number in range(5, 8):
        write_deltalake(folder, pa.table({"id": [number], "s": ["n"], "x": [0.0]}), mode="append")
    table = DeltaTable(folder)
    table.create_checkpoint()
    for log in sorted((folder / "_delta_log").glob("*.json"))[:-1]:
        log.unlink()
    more: dict[str, list[Any]] = {"id": [5, 6, 7], "s": ["n"] * 3, "x": [0.0] * 3}
    return {name: [*values, *more[name]] for name, values in COLUMNS.items()}


@case("delta/partitions", "deltalake", "partitions by text with odd characters, by date, with null")
def _(folder: Path) -> Columns:
    columns: dict[str, list[Any]] = {
        "id": [1, 2, 3, 4],
        "p": ["a/b", "c d%", None, "é=ü"],
        "day": [date(2024, 1, 31), None, date(1969, 12, 31), date(2024, 1, 31)],
    }
    write_deltalake(
        folder,
        pa.table(columns, pa.schema([("id", pa.int64()), ("p", pa.string()), ("day", pa.date32())])),
        partition_by=["p", "day"],
    )
    return columns


@case("delta/evolved", "deltalake", "a column that is added by a later commit")
def _(folder: Path) -> Columns:
    _delta(folder)
    write_deltalake(folder, pa.table({"id": [5], "new": [True]}), mode="append", schema_mode="merge")
    return {
        "id": [1, 2, 3, 4, 5],
        "s": ["a", None, "b", "a", None],
        "x": [1.5, 2.5, None, 4.5, None],
        "new": [None] * 4 + [True],
    }


@case("delta/restored", "deltalake", "overwritten, then restored")
def _(folder: Path) -> Columns:
    table = _delta(folder)
    write_deltalake(folder, pa.table({"id": [9], "s": ["q"], "x": [9.0]}), mode="overwrite")
    table = DeltaTable(folder)
    table.restore(0)
    return COLUMNS


@case("delta/odd-folder", "deltalake", "a folder with spaces, a plus sign and unicode in its name")
def _(folder: Path) -> Written:
    write_deltalake(folder / "a b+c é", pa.table(COLUMNS))
    return Written(COLUMNS, "a b+c é")


@case("delta/log-leftovers", "deltalake", "folders and temporary files in the log's folder")
def _(folder: Path) -> Columns:
    _delta(folder)
    log = folder / "_delta_log"
    (log / ".tmp").mkdir()
    (log / ".tmp" / "x.json").write_text("{}")
    (log / ".00000000000000000000.json.crc").write_bytes(b"crc")
    (log / "_commits").mkdir()
    (log / "00000000000000000007.json.tmp").write_text("{")
    return COLUMNS


@case("delta/commit-data", "deltalake", "all kinds of texts in `commitInfo`")
def _(folder: Path) -> Columns:
    _delta(folder, commit_properties=CommitProperties(custom_metadata={"é\n": '"{}[]\u2028', "x" * 1000: "y"}))
    return COLUMNS


@case("delta/polars", "Polars", "nested values and unsigned integers")
def _(folder: Path) -> Columns:
    columns = {"id": [1, 2], "l": [["a"], []], "o": [{"p": 1, "q": None}, {"p": None, "q": "r"}]}
    pl.DataFrame(columns).write_delta(str(folder))
    return columns


@case("delta/cut-commit", "Python", "a truncated commit")
def _(folder: Path) -> Refused:
    _delta(folder)
    log = folder / "_delta_log" / "00000000000000000000.json"
    log.write_bytes(log.read_bytes()[:-30])
    return Refused.with_words("00000000000000000000.json")


@case("delta/file-gone", "Python", "a missing data file")
def _(folder: Path) -> Refused:
    table = _delta(folder)
    path = folder / next(iter(pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()))
    path.unlink()
    return Refused.with_words(path.name)


@case("delta/leaves-the-store", "Python", "a data file with an HTTP URL")
def _(folder: Path) -> Refused:
    _delta(folder)
    log = folder / "_delta_log" / "00000000000000000000.json"
    path = next(folder.glob("*.parquet"))
    log.write_text(log.read_text().replace(path.name, "http://127.0.0.1:9/x.parquet"))
    return Refused.with_words("http://127.0.0.1:9", "allow")


@case("delta/typed-partitions", "deltalake", "partitions by numbers, booleans, decimals, bytes and timestamps")
def _(folder: Path) -> Columns:
    columns: dict[str, list[Any]] = {
        "id": [1, 2],
        "n": [-7, 8],
        "b": [True, False],
        "x": [1.5, -0.25],
        "d": [Decimal("1.10"), Decimal("2.01")],
        "t": ["2024-01-31T12:00:00.123456+00:00", "1969-12-31T23:59:59.5+00:00"],
    }
    times = pa.array([datetime.fromisoformat(text) for text in columns["t"]], pa.timestamp("us", "UTC"))
    table = pa.table(columns | {"t": times, "d": pa.array(columns["d"], pa.decimal128(9, 2))})
    write_deltalake(folder, table, partition_by=["n", "b", "x", "d", "t"])
    return columns


@case("delta/empty", "deltalake", "a table whose rows were all deleted")
def _(folder: Path) -> Columns:
    _delta(folder).delete()
    return {name: [] for name in COLUMNS}


@case("delta/merged", "deltalake", "a merge that updates, deletes and inserts, with change data")
def _(folder: Path) -> Columns:
    table = _delta(folder, configuration={"delta.enableChangeDataFeed": "true"})
    source = pa.table({"id": [1, 2, 9], "s": ["A", "gone", "new"], "x": [10.0, 0.0, 9.5]})
    merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merge = merge.when_matched_delete("s.s = 'gone'").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    return {"id": [1, 3, 4, 9], "s": ["A", "b", "a", "new"], "x": [10.0, None, 4.5, 9.5]}


@case("delta/earlier", "deltalake", "the state of an earlier version")
def _(folder: Path) -> Written:
    _delta(folder).delete("id > 2")
    write_deltalake(folder, pa.table({"id": [9], "s": ["q"], "x": [9.0]}), mode="overwrite")
    return Written({name: values[:2] for name, values in COLUMNS.items()}, options=("--at", "1"))


@case("delta/odd-names", "deltalake", "columns named with spaces, dots, quotes and unicode")
def _(folder: Path) -> Columns:
    columns = {"a b": [1], "c'd": [2], "é": [3], "e-f/g": [4], "SELECT": [5]}
    write_deltalake(folder, pa.table(columns))
    return columns
