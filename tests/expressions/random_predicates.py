"""Random tables and predicates, and an oracle of SQL's three-valued logic in plain Python.

The oracle shares no code with the package. A predicate is a tree of tuples, which is converted to SQL and evaluated
here.
"""

from __future__ import annotations

import math
import re
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa

FIELDS: dict[str, pa.DataType] = {
    "small": pa.int8(),
    "big": pa.uint64(),
    "price": pa.decimal128(12, 2),
    "wide": pa.decimal128(38, 0),
    "ratio": pa.float64(),
    "single": pa.float32(),
    "word": pa.string(),
    "view": pa.string_view(),
    "code": pa.dictionary(pa.int32(), pa.string()),
    "raw": pa.binary(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "local": pa.timestamp("us"),
    "moment": pa.timestamp("ms", "Europe/Paris"),
    "key": pa.uuid(),
    "nothing": pa.null(),
}
"""Columns at the top of tables; `word`, `ratio` and `day` are also in the struct `in`."""

_EPOCH = datetime(1970, 1, 1)
_LONG = "ä" * 40 + "x" * 30
_TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "ä",
    "zz",
    "a%b",
    "a_b",
    "a\\b",
    "it's",
    'a"b',
    "😀",
    _LONG,
    _LONG + "y",
    "\U0010ffff" * 30,
]
_VALUES: dict[str, list[Any]] = {
    "small": [-128, -1, 0, 1, 2, 3, 127],
    "big": [0, 1, 2**53 + 1, 2**63, 2**64 - 1],
    "price": [Decimal("-1.00"), Decimal("0.00"), Decimal("0.01"), Decimal("1.25"), Decimal("9999999999.99")],
    "wide": [Decimal(-(10**37) - 1), Decimal(-(10**37)), Decimal(0), Decimal(10**37 + 1), Decimal(7)],
    "ratio": [-math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, 1e300, math.inf, math.nan],
    "single": [-math.inf, -1.5, -0.0, 0.0, 0.5, 1.0, math.nan],
    "word": _TEXTS,
    "raw": [b"", b"\x00", b"a", b"\xff", b"\xff" * 70, b"ab"],
    "flag": [False, True],
    "day": [date(1, 1, 1), date(1581, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "local": [datetime(1500, 1, 1), _EPOCH, datetime(2024, 1, 1, 12, 0, 0, 1), datetime(2262, 1, 1)],
    "moment": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 7, 1, 0, 0, 0, 1000, tzinfo=UTC)],
    "key": [uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)],
    "nothing": [],
}
_VALUES |= {"view": _TEXTS, "code": _TEXTS}
for _name in ("word", "ratio", "day"):
    _VALUES[f"in.{_name}"] = _VALUES[_name]
PATHS = list(_VALUES)


def _literal(name: str, value: Any) -> str:
    """Return a value as a literal of SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"'{value}'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime):
        return f"timestamp '{value.isoformat()}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, int | Decimal):
        return f"{value}"
    return "'" + str(value).replace("'", "''") + "'"


def literals(name: str) -> st.SearchStrategy[Any]:
    """Draw values that occur in a column, values between and beyond these, and null."""
    more: dict[str, list[Any]] = {
        "small": [-129, 1000, Decimal("1.5"), 10**30],
        "big": [-1, 2**64, Decimal("0.5")],
        "price": [Decimal("1.255"), Decimal("1e30"), -5],
        "wide": [Decimal("0.5"), Decimal("1e40"), 7],
        "ratio": [2, Decimal("0.1")],
        "single": [Decimal("0.1"), 3],
        "day": [date(2000, 1, 1)],
        "local": [datetime(2000, 1, 1)],
    }
    plain = name.removeprefix("in.")
    values = [*_VALUES[name], *more.get(plain, [])]
    return st.sampled_from([*values, None]) if values else st.sampled_from([None, 1])


def predicates(depth: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw predicates as trees of tuples, with at most 2 ** `depth` leaves."""
    leaf = st.one_of(
        st.sampled_from(PATHS).flatmap(
            lambda name: st.tuples(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.just(name), literals(name))
        ),
        st.sampled_from(PATHS).flatmap(
            lambda name: st.tuples(st.just("in"), st.just(name), st.lists(literals(name), min_size=1, max_size=4))
        ),
        st.sampled_from(PATHS).flatmap(
            lambda name: st.tuples(st.just("between"), st.just(name), literals(name), literals(name))
        ),
        st.tuples(st.just("null"), st.sampled_from([*PATHS, "in", "list"])),
        st.tuples(st.just("nan"), st.sampled_from(["ratio", "single", "in.ratio"])),
        st.tuples(
            st.just("like"),
            st.sampled_from(["word", "view", "code", "in.word"]),
            st.sampled_from(
                ["a%", "%", "a_b", "a\\%b%", "a\\\\b", "ab", "", "_", "%b", "ä%", _LONG + "%", "\U0010ffff%", "a%b"]
            ),
        ),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        ),
        max_leaves=2**depth,
    )


def sql(node: tuple[Any, ...]) -> str:
    """Convert a predicate, given as a tree of tuples, to its SQL text."""
    kind = node[0]
    if kind == "not":
        return f"not ({sql(node[1])})"
    if kind in ("and", "or"):
        return f" {kind} ".join(f"({sql(child)})" for child in node[1])
    name = ".".join(f'"{part}"' for part in node[1].split("."))
    write = [("null" if operand is None else _literal(node[1], operand)) for operand in _operands(node)]
    if kind == "in":
        return f"{name} in ({', '.join(write)})"
    if kind == "between":
        return f"{name} between {write[0]} and {write[1]}"
    if kind in ("null", "nan"):
        return f"{name} is {kind}"
    if kind == "like":
        return f"{name} like " + "'" + node[2] + "'"
    return f"{name} {kind} {write[0]}"


def _operands(node: tuple[Any, ...]) -> list[Any]:
    if node[0] in ("null", "nan", "like"):
        return []
    return list(node[2]) if node[0] == "in" else list(node[2:])


def holds(node: tuple[Any, ...], row: dict[str, Any]) -> bool | None:
    """Evaluate a predicate, given as a tree of tuples, on one row by three-valued logic.

    None stands for null.
    """
    kind = node[0]
    if kind == "not":
        inner = holds(node[1], row)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        result = [holds(child, row) for child in node[1]]
        decisive = kind == "or"
        return decisive if decisive in result else None if None in result else not decisive
    value = _value(row, node[1])
    if kind == "null":
        return value is None
    if value is None:
        return None
    if kind == "nan":
        return math.isnan(value)
    if kind == "like":
        return re.fullmatch(_regex(node[2]), value, re.DOTALL) is not None
    if kind == "in":
        result = [compare_values("=", value, operand) for operand in node[2]]
        return True if True in result else None if None in result else False
    if kind == "between":
        return holds(("and", [(">=", node[1], node[2]), ("<=", node[1], node[3])]), row)
    return compare_values(kind, value, node[2])


def _value(row: dict[str, Any], name: str) -> Any:
    outer, _, inner = name.partition(".")
    value = row[outer]
    return value if not inner or value is None else value[inner]


def compare_values(operator: str, value: Any, other: Any) -> bool | None:
    """Compare two Python values as Spark and DuckDB do; None if one is null."""
    if value is None or other is None:
        return None
    if isinstance(value, float):
        other = float(other)
    low, high = _key(value), _key(other)
    return {
        "=": low == high,
        "!=": low != high,
        "<": low < high,
        "<=": low <= high,
        ">": low > high,
        ">=": low >= high,
    }[operator]


def _key(value: Any) -> Any:
    """Return a sort key: NaN is the greatest number, and text is ordered by its bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return value.encode()
    return value.bytes if isinstance(value, uuid.UUID) else value


def _regex(pattern: str) -> str:
    result, at = "", 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
            result += re.escape(pattern[at])
        else:
            result += {"%": ".*", "_": "."}.get(character) or re.escape(character)
        at += 1
    return result


@st.composite
def rows_of(draw: st.DrawFn, least: int = 0, most: int = 12) -> list[dict[str, Any]]:
    """Draw `least` to `most` rows in which columns are often sorted, constant or all null."""
    count = draw(st.integers(least, most))
    columns: dict[str, list[Any]] = {}
    for name in PATHS:
        values = _VALUES[name]
        shape = draw(st.sampled_from(["mixed", "few", "null", "mixed"]))
        pool = (
            [None]
            if shape == "null" or not values
            else draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
            if shape == "few"
            else [*values, None]
        )
        columns[name] = [draw(st.sampled_from(pool)) for _ in range(count)]
    absent = [draw(st.booleans()) if draw(st.booleans()) else False for _ in range(count)]
    return [
        {
            **{name: columns[name][at] for name in FIELDS},
            "in": None if absent[at] else {name: columns[f"in.{name}"][at] for name in ("word", "ratio", "day")},
            "list": None if absent[at] else [1] * (at % 3),
        }
        for at in range(count)
    ]


INNER = pa.struct([("word", pa.string()), ("ratio", pa.float64()), ("day", pa.date32())])


def schema() -> pa.Schema:
    """Return the Arrow schema of all random tables."""
    return pa.schema([*FIELDS.items(), ("in", INNER), ("list", pa.list_(pa.int64()))])


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Convert rows to an Arrow table."""
    arrays = []
    for field in schema():
        values = [row[field.name] for row in rows]
        if field.type == pa.uuid():
            storage = pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
            arrays.append(pa.ExtensionArray.from_storage(field.type, storage))
        elif pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema())


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with values as the table's types store them, for example rounded to 32-bit floats."""
    singles = pa.array([row["single"] for row in rows], pa.float32()).to_pylist()
    return [{**row, "single": single} for row, single in zip(rows, singles, strict=True)]


__all__ = ["PATHS", "holds", "plain", "predicates", "rows_of", "schema", "sql", "table_of"]
