"""Translation of Polars' predicates to Arrow expressions, for pruning.

Only the serialized form of an expression gives access to its parts, and it may change between versions of Polars. A
part in an unknown form is ignored, so more files are read. Polars itself filters the rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.values.types import is_text

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Eq": lambda left, right: left == right,
    "NotEq": lambda left, right: left != right,
    "Lt": lambda left, right: left < right,
    "LtEq": lambda left, right: left <= right,
    "Gt": lambda left, right: left > right,
    "GtEq": lambda left, right: left >= right,
}
_COMMUTED = {"Eq": "Eq", "NotEq": "NotEq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_BETWEEN = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}
_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_UNKNOWN_FORM = (AttributeError, KeyError, LookupError, OverflowError, TypeError, ValueError, pa.ArrowException)


def weaken_predicate(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Return an Arrow expression that is true of every row for which a Polars expression is true.

    Args:
        predicate: An expression of Polars on the columns of the schema.
        schema: The columns with the types in which Polars gets them.

    Returns:
        The expression. It may be true of more rows. None if no part of the predicate has a known form.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (*_UNKNOWN_FORM, pl.exceptions.PolarsError):
        return None
    return _Translator(schema).weaken(tree)


class _Translator:
    """A translator of the nodes of a serialized expression.

    A node is an object with one key, the node's kind.
    """

    def __init__(self, schema: pa.Schema) -> None:
        names = schema.names
        self._types = {field.name: field.type for field in schema if names.count(field.name) == 1}

    def weaken(self, node: Any) -> pc.Expression | None:
        """Return an expression that is true of all rows for which the node is true; None for an unknown form."""
        try:
            return self._weaken(node)
        except _UNKNOWN_FORM:
            return None

    def _weaken(self, node: Any) -> pc.Expression | None:
        """Do the same as `weaken`, but raise one of the errors in `_UNKNOWN_FORM` for some unknown forms."""
        ((kind, value),) = node.items()
        if kind == "Column":
            return pc.field(value) if pa.types.is_boolean(self._types[value]) else None
        if kind == "Function":
            return self._weaken_function(value)
        if kind != "BinaryExpr":
            return None
        operator, left, right = value["op"], value["left"], value["right"]
        if operator in ("And", "LogicalAnd"):
            parts = [part for part in map(self.weaken, (left, right)) if part is not None]
            return reduce(and_, parts) if parts else None
        if operator in ("Or", "LogicalOr"):
            alternatives = [self.weaken(left), self.weaken(right)]
            return None if any(part is None for part in alternatives) else reduce(or_, alternatives)
        if "Column" in left:
            return self._compare(left["Column"], operator, right)
        return self._compare(right["Column"], _COMMUTED[operator], left)

    def _weaken_function(self, call: Mapping[str, Any]) -> pc.Expression | None:
        """Do the same as `_weaken` for a call of a function whose first argument is a column.

        For another first argument, one of the errors in `_UNKNOWN_FORM` is raised.
        """
        function, (column, *arguments) = call["function"], call["input"]
        name = column["Column"]
        if name not in self._types:
            return None
        if function == {"StringExpr": "StartsWith"} and is_text(self._types[name]):
            return pc.starts_with(pc.field(name), _parse_literal(arguments[0], pa.string()).as_py())
        boolean = function["Boolean"]
        if boolean == "IsNull":
            return pc.field(name).is_null()
        if boolean == "IsNotNull":
            return pc.field(name).is_valid()
        if boolean == "Not" and pa.types.is_boolean(self._types[name]):
            return ~pc.field(name)
        if "IsBetween" in boolean:
            lower, upper = _BETWEEN[boolean["IsBetween"]["closed"]]
            parts = [self._compare(name, lower, arguments[0]), self._compare(name, upper, arguments[1])]
            return None if any(part is None for part in parts) else reduce(and_, parts)
        if "IsIn" in boolean:
            return self._is_in(name, arguments[0], nulls_equal=boolean["IsIn"]["nulls_equal"])
        return None

    def _compare(self, name: str, operator: str, literal: Any) -> pc.Expression | None:
        """Return the Arrow comparison of a column with a literal; None for null, NaN and infinities.

        With `>` and `>=` on doubles, the comparison is also true of NaN, which exceeds all numbers in Polars.
        """
        compare, field = _COMPARISONS[operator], pc.field(name)
        scalar = _parse_literal(literal, self._types[name])
        if not scalar.is_valid:
            return None
        expression = compare(field, scalar)
        if pa.types.is_float64(scalar.type):
            if not math.isfinite(scalar.as_py()):
                return None
            if operator in ("Gt", "GtEq"):
                expression |= pc.is_nan(field)  # in Polars, NaN exceeds all numbers
        return expression

    def _is_in(self, name: str, literal: Any, *, nulls_equal: bool) -> pc.Expression | None:
        """Return the Arrow expression for `is_in`; None if the types of column and list are not supported.

        Args:
            name: The name of the column.
            literal: The list of values, which Polars serializes as an Arrow stream.
            nulls_equal: Whether null is in a list that contains null.
        """
        type_ = self._types[name]
        if not (pa.types.is_integer(type_) or is_text(type_) or pa.types.is_date32(type_)):
            return None
        with pa.ipc.open_stream(bytes(literal["Literal"]["Scalar"]["List"])) as stream:
            values: Sequence[Any] = [value for batch in stream for value in batch.column(0).to_pylist()]
            stored_type = stream.schema.field(0).type
        if not (stored_type == type_ or (is_text(stored_type) and is_text(type_))):
            return None
        expression = pc.field(name).isin(pa.array([value for value in values if value is not None], type_))
        return expression | pc.field(name).is_null() if nulls_equal and None in values else expression


def _parse_literal(node: Any, type_: pa.DataType) -> pa.Scalar:
    """Convert a serialized literal to a scalar of a column's type.

    Raises one of the errors in `_UNKNOWN_FORM` for a literal of another type, such as a float for a column of integers.
    For a comparison with such a literal, Polars would convert the column's values.
    """
    ((kind, value),) = node["Literal"].items()
    ((stored_type, content),) = value.items()
    if pa.types.is_integer(type_) and type(content) is int and (kind, stored_type) == ("Dyn", "Int"):
        return pa.scalar(content, type_)
    if kind != "Scalar":
        raise ValueError(f"a literal of the kind {kind}")
    if is_text(type_) and stored_type == "String" and isinstance(content, str):
        return pa.scalar(content, pa.string())
    if stored_type == _scalar_name(type_) and type(content) in (int, float, bool):
        return pa.scalar(content, type_)
    if pa.types.is_timestamp(type_) and stored_type == "Datetime":
        ticks, unit, zone = content
        if _UNITS[unit] == type_.unit and (zone["inner"] if zone else None) == type_.tz:
            return pa.scalar(ticks, type_)
    raise ValueError(f"a {stored_type} where the column has {type_}")


def _scalar_name(type_: pa.DataType) -> str | None:
    """Return Polars' name of an Arrow type, such as `Int32`.

    The result is None for types other than integers, float64, boolean and 32-bit dates.
    """
    if pa.types.is_integer(type_):
        return str(type_).replace("uint", "UInt").replace("int", "Int")
    if pa.types.is_float64(type_):
        return "Float64"
    if pa.types.is_boolean(type_):
        return "Boolean"
    return "Date" if pa.types.is_date32(type_) else None
