"""Every real table has its recorded row count, and each column its recorded statistics.

The statistics are the numbers of nulls and distinct values, and the minimum and maximum.

A truth file has the recorded statistics of one table in JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError, TableFormatError
from metastore_assets.formats import open_table_format
from tests.formats.hudi.realtables import unpacked
from tests.formats.oracle import ColumnSummary, read_columns, read_rows, summarize_columns

_FOLDER = Path(__file__).parents[3] / "shared" / "realtables"
_TABLES = [
    f"{parent}/{folder.name}"
    for parent in ("delta", "iceberg", "listing")
    for folder in sorted((_FOLDER / parent).glob("*"))
    if folder.suffix != ".ext"
] + [f"hudi/{archive.stem}" for archive in sorted((_FOLDER / "hudi").glob("*.zip"))]
_REFUSED = {
    "listing/csv_impala_strings_with_quotes": "line 9: a quoted value goes on behind its closing quote",
    "listing/csv_impala_table_missing_columns": "line 2: Expected 4 columns, got 2",
    "listing/orc_TestOrcFile_testTimestamp": "top-level struct",
}
"""Tables that are refused, with a part of the error.

Their truth file has no contents, or those that pyarrow read, which the writer did not write.
"""
_DEVIATIONS = {
    "listing/parquet_int96_from_spark": "holds a timestamp of the year 290000 that Spark itself let overflow: refused",
}
"""Tables that are refused with a FragmentError instead of read, with the reason."""
_ROUNDED = {("listing/csv_aggregate_test_100", "c10")}
"""Columns of integers beyond 2^63, which truth has as floats and the reader exactly."""
_UNIONS = {("listing/orc_TestOrcFile_testUnionAndTimestamp", "union")}
"""Columns of ORC unions, which truth has as texts and the reader as a struct of the alternatives."""
_RELOCATED = {"iceberg/duck_column_mapping": "has a data file outside of its folder"}
"""Moved tables that need a path mapping, with the reason."""
_RENAMED = {("iceberg/duck_case_sensitive_names", "uSeR_Id_1"): "uSeR_Id"}
"""Columns of truth that its engine renamed, because it knows no names that differ in case only."""


def _parameters() -> list[Any]:
    if not _TABLES:
        return [pytest.param("", marks=pytest.mark.skip(reason="the real tables are not there: ../shared/realtables"))]
    return [
        pytest.param(
            name,
            marks=[pytest.mark.xfail(raises=FragmentError, reason=_DEVIATIONS[name])] if name in _DEVIATIONS else [],
        )
        for name in _TABLES
    ]


def _config(name: str, realtables: Path, at: str | None = None) -> TableConfig:
    path_mapping = {}
    if name.startswith("hudi/"):
        return TableConfig(name="t", uri=str(unpacked(realtables, name.removeprefix("hudi/"))), at=at)
    if name in _RELOCATED:
        entries = json.loads((realtables / "manifest.json").read_text())
        pairs = next(entry["location_remap"] for entry in entries if entry["path"] == name)
        path_mapping = {old: str(realtables / new) for old, new in pairs}
    return TableConfig(name="t", uri=str(realtables / name), path_mapping=path_mapping, at=at)


def _chosen(union: dict[str, Any]) -> str:
    return str(union[f"field{union['tag']}"])


@pytest.mark.parametrize("name", _parameters())
def test_a_real_table_equals_its_recorded_truth(name: str, realtables: Path) -> None:
    """A table has the columns of its truth file, and no others, with the same statistics.

    A table in `_REFUSED` is refused with the error that is given there.
    """
    truth = json.loads((realtables / "truth" / f"{name.replace('/', '__')}.json").read_text())
    truth["columns"] = {
        _RENAMED.get((name, path), path): expected for path, expected in truth.get("columns", {}).items()
    }
    table = open_table_format(_config(name, realtables))
    if "error" in truth or name in _REFUSED:
        with pytest.raises(TableFormatError, match=_REFUSED[name]):
            table.snapshot()
        return
    snapshot = table.snapshot()
    assert table.snapshot_id() == snapshot.id
    columns = read_columns(snapshot)
    summaries: dict[str, ColumnSummary] = {}
    for field in snapshot.schema:
        assert len(columns[field.name]) == truth["row_count"]
        if (name, field.name) in _UNIONS:
            columns[field.name] = [value and _chosen(value) for value in columns[field.name]]
            field = field.with_type(pa.string())
        summaries |= summarize_columns(field.name, field.type, columns[field.name])
    # Truth files lack the children of lists and maps without any element.
    assert {path for path, summary in summaries.items() if summary.rows} == {
        path for path, expected in truth["columns"].items() if expected["value_count"]
    }
    for path, expected in truth["columns"].items():
        summary = summaries[path]
        actual = {
            # `value_count` in truth files includes nulls.
            "value_count": summary.rows,
            "null_count": summary.null_count,
            "distinct_count": summary.distinct_count,
            "nan_count": summary.nan_count,
            "min": summary.minimum,
            "max": summary.maximum,
        }
        if (name, path) in _ROUNDED:
            actual |= {"min": float(summary.minimum), "max": float(summary.maximum), "nan_count": 0}
        assert {key: actual[key] for key in expected} == expected, path


@pytest.mark.parametrize("name", [name for name in _TABLES if name.startswith("iceberg/")])
def test_snapshots_of_an_iceberg_table_have_their_recorded_row_counts(name: str, realtables: Path) -> None:
    """Each snapshot of a real Iceberg table, opened by its id, has its recorded row count."""
    if name in _DEVIATIONS:
        pytest.skip(_DEVIATIONS[name])
    truth = json.loads((realtables / "truth" / f"{name.replace('/', '__')}.json").read_text())
    counts = {at: state["rows"] for at, state in truth["versions"].items() if state.get("rows") is not None}
    for at, rows in counts.items():
        table = open_table_format(_config(name, realtables, at))
        snapshot = table.snapshot()
        assert snapshot.id == table.snapshot_id() == at
        assert len(read_rows(snapshot)) == rows


def test_quotes_in_values_are_read_with_an_option(realtables: Path) -> None:
    """With empty options `quote` and `escape`, a file of Impala has 11 rows, as in DuckDB."""
    uri = str(realtables / "listing" / "csv_impala_strings_with_quotes")
    table = open_table_format(TableConfig(name="t", uri=uri, options={"quote": "", "escape": "", "header": False}))
    columns = read_columns(table.snapshot())
    assert columns["f1"] == list(range(1, 12))
    assert columns["f0"][:3] == ['"', '""', r"\\" + '"']
