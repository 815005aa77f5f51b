"""Results of user-defined statistics: a value with its guarantee, or why there is no value.

A guarantee says whether a value is exact, a bound, an estimate or absent. The table `statistics` has one row per
column of a data table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.statistics.declaration import Guarantee

FIELDS = ("value", "guarantee", "reason")
"""The fields of a result, which is a struct in the file `statistics`; null for columns that have no such statistic."""


@dataclass(frozen=True)
class UserResult:
    """The result of a user-defined statistic for one column.

    It can be sent between processes.
    """

    array: pa.Array
    """One element of the declared type: the value, or null if it is unknown or not defined."""
    guarantee: Guarantee
    reason: str | None = None
    """Why the value could not be computed. None if it was computed, even if it is not defined and therefore null."""

    @property
    def value(self) -> pa.Scalar:
        """The value as an Arrow scalar, which is null if there is none."""
        return self.array[0]


def build_result_columns(rows: Sequence[Mapping[str, UserResult]]) -> dict[str, pa.StructArray]:
    """Return the columns of the table `statistics`, by name, with the results of user-defined statistics.

    Args:
        rows: For each row, the results of user-defined statistics, by name. Rows may have different statistics.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def read_results(table: pa.Table, builtin: Sequence[str]) -> list[dict[str, UserResult]]:
    """Return the user-defined results of each row of a table `statistics`, by name.

    Args:
        table: The table.
        builtin: Names of the columns of built-in statistics, which are ignored.
    """
    rows: list[dict[str, UserResult]] = [{} for _ in range(table.num_rows)]
    for field in table.schema:
        if field.name in builtin or not _is_result(field.type):
            continue
        column = table[field.name].combine_chunks()
        valid = column.is_valid().to_pylist()
        values, guarantees, reasons = (pc.struct_field(column, name) for name in FIELDS)
        entries = zip(valid, guarantees.to_pylist(), reasons.to_pylist(), strict=True)
        for at, (is_present, guarantee, reason) in enumerate(entries):
            if is_present:
                rows[at][field.name] = UserResult(values.slice(at, 1), guarantee, reason)
    return rows


def normalize_results(table: pa.Table, builtin: Sequence[str]) -> dict[str, pa.Array]:
    """Return the columns with results of user-defined statistics, except those that have only nulls.

    Args:
        table: A table with the columns of the files `statistics`.
        builtin: Names of the columns of built-in statistics, which are ignored.

    Returns:
        The columns by name, ordered by the first row that has a result.
    """
    columns: list[tuple[int, str, pa.Array]] = []
    for field in table.schema:
        if field.name not in builtin and _is_result(field.type):
            column = table[field.name].combine_chunks()
            if column.null_count < len(column):
                columns.append((pc.index(column.is_valid(), True).as_py(), field.name, column))
    return {name: column for _, name, column in sorted(columns, key=lambda entry: entry[0])}


def _is_result(type_: pa.DataType) -> bool:
    return pa.types.is_struct(type_) and tuple(field.name for field in type_) == FIELDS


def _column(results: Sequence[UserResult | None]) -> pa.StructArray:
    """Return the results of one statistic as structs; null for None."""
    type_ = next(result.array.type for result in results if result is not None)
    arrays = [
        pa.concat_arrays([pa.nulls(1, type_) if result is None else result.array for result in results]),
        pa.array([None if result is None else result.guarantee for result in results], pa.string()),
        pa.array([None if result is None else result.reason for result in results], pa.string()),
    ]
    mask = pa.array([result is None for result in results], pa.bool_())
    return pa.StructArray.from_arrays(arrays, names=list(FIELDS), mask=mask)
