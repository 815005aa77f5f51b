"""Binding: conversion of unbound predicates to predicates on the typed columns of one table.

A type class is a group of column types whose values are stored as one Arrow type.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc
from pyarrow import types as t

from metastore_assets.errors import ColumnNotFoundError, PredicateError, UnsupportedTypeError
from metastore_assets.expressions.predicates import BoundColumn, Predicate
from metastore_assets.expressions.unbound import ColumnName, LiteralTarget, UnboundPredicate
from metastore_assets.messages import close_names
from metastore_assets.values.columns import Column, plain_type, quoted_name
from metastore_assets.values.types import type_class


def parse_predicate(expression: str | pc.Expression, table: str, columns: Sequence[Column]) -> Predicate:
    """Parse an expression, and bind it to the columns of a table.

    Args:
        expression: SQL text or an Arrow expression.
        table: The table's name, for messages.
        columns: The columns of the table, and the fields nested in them.

    Raises:
        PredicateError: The expression does not parse, or compares a column whose values cannot be compared.
        ColumnNotFoundError: The expression names a column that the table does not have.
        LiteralError: A literal is not a value of its column.
    """
    if isinstance(expression, str):
        from metastore_assets.expressions.sql_parser import parse_sql  # the parser takes 90 ms to be imported

        unbound = parse_sql(expression)
    elif isinstance(expression, pc.Expression):
        from metastore_assets.expressions.arrow_parser import parse_arrow

        unbound = parse_arrow(expression)
    else:
        raise PredicateError(f"a predicate is SQL text or an Arrow expression, not a {type(expression).__name__}")
    return bind_predicate(unbound, table, columns)


def bind_predicate(unbound: UnboundPredicate, table: str, columns: Sequence[Column], noun: str = "column") -> Predicate:
    """Bind a parsed predicate to the typed columns of a table.

    Args:
        unbound: The parsed predicate.
        table: The table's name, for messages.
        columns: The columns that the predicate may refer to.
        noun: The word for a column in messages.

    Raises:
        PredicateError: The predicate is nested too deep, or compares a column whose values cannot be compared.
        ColumnNotFoundError: The predicate names a column that is not among `columns`.
        LiteralError: A literal is not a value of its column.
    """
    return unbound.bind(Binder(table, columns, noun), negated=False)


class Binder:
    """A resolver of the names and literals of a predicate, for the columns of one table."""

    def __init__(self, table: str, columns: Sequence[Column], noun: str) -> None:
        self._table = table
        self._noun = noun
        self._columns = {column.path: column for column in columns}

    def resolve(self, name: ColumnName) -> BoundColumn:
        """Return the column with a name.

        If no column has exactly this name, upper and lower case are ignored.

        Raises:
            ColumnNotFoundError: There is no such column, or several differ only in case.
            PredicateError: The column is inside a list or a map, so a row has no single value of it.
        """
        column = self._resolve(name)
        if column.repeated:
            raise PredicateError(
                f"column {column.path!r} of table {self._table!r} is inside a list or a map: a row has none or many of "
                "its values, so a predicate on rows cannot refer to it"
            )
        try:
            return BoundColumn(column.path, column.field_id, type_class(column.type))
        except UnsupportedTypeError:
            return BoundColumn(column.path, column.field_id, None)

    def resolve_comparable(self, name: ColumnName) -> BoundColumn:
        """Return the column with a name, like `resolve`, for a condition that compares its values.

        Raises PredicateError if its values cannot be compared, in addition to the errors of `resolve`.
        """
        column = self.resolve(name)
        if column.cls is None:
            raise PredicateError(
                f"the type of {self.subject(column)} is {self.type_name(column)}, whose values do not compare; only "
                "`is null` and `is not null` apply to it"
            )
        return column

    def target(self, column: BoundColumn) -> LiteralTarget:
        """Return what the conversion of literals needs: a column's type class and its name in messages."""
        return LiteralTarget(column.type_class, self.subject(column))

    def subject(self, column: BoundColumn) -> str:
        """Return the text by which messages name a column, such as `column 'day' of table 'orders'`."""
        return f"{self._noun} {column.path!r} of table {self._table!r}"

    def type_name(self, column: BoundColumn) -> str:
        """Return the type of a column in the table's schema as text, for messages."""
        return str(self._columns[column.path].type)

    def is_float32(self, column: BoundColumn) -> bool:
        """Return whether the column has 32-bit floats."""
        return t.is_float32(plain_type(self._columns[column.path].type))

    def _resolve(self, name: ColumnName) -> Column:
        """Return the column with this name or, if there is none, the only one that differs only in case.

        Raises ColumnNotFoundError if there is no such column.
        """
        # With a field `a.b` beside a struct `a` with a field `b`, a name in one pair of quotes means the field.
        quoted_path = ".".join(map(quoted_name, name.parts))
        column = self._columns.get(quoted_path) or self._columns.get(name.path)
        if column is not None:
            return column
        matching = [path for path in self._columns if path.lower() == name.path.lower()]
        if len(matching) != 1:
            raise ColumnNotFoundError(
                f"table {self._table!r} has no {self._noun} {name.path!r}"
                + close_names(name.path, list(self._columns), f"; its {self._noun}s are: {{}}")
            )
        return self._columns[matching[0]]
