"""What is told of a user-defined statistic: a value, what it is worth, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.startup import pc
from metastore_assets.statistics.declaration import Guarantee

FIELDS = ("value", "guarantee", "reason")
"""Of the struct that a statistic has in its column of `statistics`; null where it is not for a row's column."""


@dataclass(frozen=True)
class UserResult:
    """Of one statistic, of one column. Travels between processes."""

    array: pa.Array
    """The value, of the type that the statistic declares: one element, null if the value is not known."""
    guarantee: Guarantee
    reason: str | None = None
    """Why there is no value; None also where it is not defined, as of a column without values."""

    @property
    def value(self) -> pa.Scalar:
        """The value, as an Arrow scalar."""
        return self.array[0]


def build_result_columns(rows: Sequence[Mapping[str, UserResult]]) -> dict[str, pa.StructArray]:
    """The columns of `statistics`, by name, in the order in which rows have the statistics."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def read_results(table: pa.Table, known: Sequence[str]) -> list[dict[str, UserResult]]:
    """By row of `statistics`, its user-defined statistics: those that none of the `known` columns is."""
    rows: list[dict[str, UserResult]] = [{} for _ in range(table.num_rows)]
    for field in table.schema:
        if field.name in known or not _is_result(field.type):
            continue
        column = table[field.name].combine_chunks()
        valid = column.is_valid().to_pylist()
        values, guarantees, reasons = (pc.struct_field(column, name) for name in FIELDS)
        told = zip(valid, guarantees.to_pylist(), reasons.to_pylist(), strict=True)
        for at, (there, guarantee, reason) in enumerate(told):
            if there:
                rows[at][field.name] = UserResult(values.slice(at, 1), guarantee, reason)
    return rows


def normalize_results(table: pa.Table, known: Sequence[str]) -> dict[str, pa.Array]:
    """Return the columns of user-defined statistics that at least one row has, ordered by the first such row."""
    found: list[tuple[int, str, pa.Array]] = []
    for field in table.schema:
        if field.name not in known and _is_result(field.type):
            column = table[field.name].combine_chunks()
            if column.null_count < len(column):
                found.append((pc.index(column.is_valid(), True).as_py(), field.name, column))
    return {name: column for _, name, column in sorted(found, key=lambda own: own[0])}


def _is_result(type_: pa.DataType) -> bool:
    return pa.types.is_struct(type_) and tuple(field.name for field in type_) == FIELDS


def _column(held: Sequence[UserResult | None]) -> pa.StructArray:
    type_ = next(own.array.type for own in held if own is not None)
    arrays = [
        pa.concat_arrays([pa.nulls(1, type_) if own is None else own.array for own in held]),
        pa.array([None if own is None else own.guarantee for own in held], pa.string()),
        pa.array([None if own is None else own.reason for own in held], pa.string()),
    ]
    mask = pa.array([own is None for own in held], pa.bool_())
    return pa.StructArray.from_arrays(arrays, names=list(FIELDS), mask=mask)
