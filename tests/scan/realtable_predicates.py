"""Predicates on the values of a real table, and the matching rows computed in plain Python.

A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.base import Snapshot
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.values.columns import plain_array
from metastore_assets.values.json import scalar_json, value_json
from metastore_assets.values.physical import canonical
from metastore_assets.values.types import classes_of
from scripts.realtables.tables import RealTable

Check = Callable[[Any], bool]
"""A function that returns whether a predicate is true for a plain value or None."""


REFUSED = {
    "listing/orc_TestOrcFile_testTimestamp",  # rows are single values instead of records
    "listing/parquet_int96_from_spark",  # a year near 290000, which overflowed in its writer
    "listing/csv_impala_table_missing_columns",  # rows of different lengths
    "listing/csv_impala_strings_with_quotes",  # quotes are part of values, which the option `quote` must declare
}


@dataclass(frozen=True)
class Question:
    """A predicate on one top-level column, and its test of a plain value."""

    where: str
    column: int
    holds: Check


CheckOne = Callable[[str, Table, TableConfig, list[list[Any]], Question], None]
"""A function of a table's name, its lookup, its configuration, all its rows, and a predicate to check."""


def check_table(check_one: CheckOne, table: RealTable, root: Path, most: int) -> int:
    """Check about `most` predicates, spread evenly over the columns, and return their number.

    The number is less than twice `most`. Returns 0 for a table in `REFUSED`, of which no version can be published.
    """
    config_ = TableConfig(name="t", uri=table.uri, path_mapping=dict(table.path_mapping))
    config = MetastoreConfig(root=str(root), tables=[config_], engine="auto")
    config_ = config.tables[0]
    try:
        refresh(config, config_, no_spark)
    except MetastoreError:
        if table.name not in REFUSED:
            raise
        return 0
    snapshot = open_table_format(config_).snapshot()
    lookup, rows, selected_questions = open_table(config.root, "t"), full_rows(snapshot), list(questions(snapshot))
    selected_questions = selected_questions[:: max(1, len(selected_questions) // most)]
    for question in selected_questions:
        check_one(table.name, lookup, config_, rows, question)
    return len(selected_questions)


def no_spark() -> Any:
    raise AssertionError("no real table needs a Spark session")


def full_rows(snapshot: Snapshot) -> list[list[Any]]:
    """Return all rows of a table as plain values, in the order of the schema's columns."""
    rows: list[list[Any]] = []
    for fragment in snapshot.fragments:
        with fragment.source.open() as reader:
            columns = [[key for chunk in reader.read(field) for key in keys(chunk)] for field in snapshot.schema]
            rows += [list(row) for row in zip(*columns, strict=True)] if columns else [[]] * reader.row_count
    return rows


def keys(array: pa.Array) -> list[Any]:
    """Convert values to plain ones with the same order and equality.

    Dates and times become integers, and texts become bytes. Nested values become texts, which have the same equality,
    but not the same order. None stands for null.
    """
    return [None if not value.is_valid else _key(value) for value in plain_array(array)]


def _key(value: pa.Scalar) -> Any:
    """Return a value in a form that Python can compare."""
    kind = value.type
    if isinstance(value, pa.ExtensionScalar):
        return value.value.as_py()
    if pa.types.is_temporal(kind):
        return value.value
    if pa.types.is_nested(kind):
        return repr(value_json(value))  # as text, because Python has no years after 9999
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return value.cast(pa.binary() if not pa.types.is_large_string(kind) else pa.large_binary()).as_py()
    return value.as_py()


def order(key: Any) -> Any:
    """Return a sort key with which NaN is the greatest number."""
    return (math.isnan(key), 0.0 if math.isnan(key) else key) if isinstance(key, float) else key


def questions(snapshot: Snapshot, most: int = 3) -> Iterator[Question]:
    """Yield conditions on each column with a unique name: null tests, and comparisons with its values.

    At most `most` values of a column are used: the least one, and later ones at equal distances in the sorted values.
    """
    for at, field in enumerate(snapshot.schema):
        name = '"' + field.name.replace('"', '""') + '"'
        if snapshot.schema.names.count(field.name) > 1 or "`" in field.name:
            continue
        yield Question(f"{name} is null", at, lambda key: key is None)
        yield Question(f"not ({name} is null)", at, lambda key: key is not None)
        classes = classes_of([field.type])
        if not classes or classes[0].kind == "null":
            continue
        values: dict[Any, pa.Scalar] = {}
        for fragment in snapshot.fragments:
            with fragment.source.open() as reader:
                for chunk in reader.read(field):
                    chunk_values = plain_array(chunk)
                    pairs = zip(keys(chunk_values), canonical(chunk_values, classes[0]), strict=True)
                    values |= {key: value for key, value in pairs if key is not None and key == key}
        result = sorted(values, key=order)
        for key in result[:: max(1, len(result) // most)][:most]:
            literal = _literal(values[key], classes[0].name)
            if literal is not None:
                yield from _about(name, at, key, literal)


def _about(name: str, at: int, key: Any, literal: str) -> Iterator[Question]:
    """Yield conditions that compare a column with one of its values."""
    order_key = order(key)
    yield Question(f"{name} = {literal}", at, lambda other: other is not None and order(other) == order_key)
    yield Question(f"not ({name} = {literal})", at, lambda other: other is not None and order(other) != order_key)
    yield Question(f"{name} < {literal}", at, lambda other: other is not None and order(other) < order_key)
    yield Question(f"{name} >= {literal}", at, lambda other: other is not None and order(other) >= order_key)
    yield Question(f"{name} in ({literal}, null)", at, lambda other: other is not None and order(other) == order_key)
    yield Question(f"{name} not in ({literal})", at, lambda other: other is not None and order(other) != order_key)


def _literal(value: pa.Scalar, cls: str) -> str | None:
    """Return a value as a literal of SQL; None for a text that SQL cannot have."""
    answer = scalar_json(value)
    if cls == "boolean":
        return str(answer).lower()
    if cls == "binary":
        return f"x'{answer}'"
    if cls == "string" and "\ufffd" in str(answer):
        return None
    if cls == "string":
        try:
            text = value.as_buffer().to_pybytes().decode()
        except UnicodeDecodeError:
            return None
        return "'" + text.replace("'", "''") + "'"
    return f"'{answer}'" if not isinstance(answer, int | float) else repr(answer)
