"""Compares what `metastore profile --json` says of a table with what is known of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_RENAMED = {"uSeR_Id_1": "uSeR_Id"}
"""Columns that the reader behind what is known renamed, because it takes `user_id` for the same name."""
_ESTIMATE_ERROR = 0.065
"""Four times the standard error of a distinct sketch."""
_FLOATS = ("halffloat", "float", "double")
_FRACTION = re.compile(r"(T\d\d:\d\d:\d\d)(?:\.(\d+))?Z?$")


def differences(answer: dict[str, Any], truth: dict[str, Any]) -> list[str]:
    """What differs, in words; empty when nothing does. Compares row count, nulls, NaNs, distinct values, and bounds."""
    found = []
    if answer["row_count"] != truth["row_count"]:
        found.append(f"{answer['row_count']} rows, not {truth['row_count']}")
    columns = {column["column"]: column for column in answer["columns"]}
    for known_path, known in truth["columns"].items():
        path = _RENAMED.get(known_path, known_path)
        if path not in columns:
            found.append(f"{path} is not there")
            continue
        told = _told(columns[path])
        if "union" in truth.get("arrow_types", {}).get(known_path, ""):
            # What is known took the alternatives for texts; they are told apart in a struct.
            told = {"value_count": told["value_count"], "null_count": told["null_count"]}
        found += [
            f"{path}: {key} is {told[key]!r}, not {value!r}"
            for key, value in known.items()
            if key in told and not _same(told[key], value, columns[path]["type"])
            if key != "distinct_count" or not is_about(columns[path], value)
        ]
    top = {_RENAMED.get(path, path).partition(".")[0] for path in truth["columns"]}
    found += [f"{path} should not be there" for path in columns if path.partition(".")[0] not in top]
    return found


def _rows(column: dict[str, Any]) -> int:
    return int(column["value_count"] or 0) + int(column["null_count"] or 0)


def _told(column: dict[str, Any]) -> dict[str, Any]:
    """In the terms of what is known, which counts nulls among the values."""
    told = {"value_count": _rows(column), "null_count": column["null_count"]}
    if column["frequencies"] == "absent" and column["distinct_count"] is None:
        return told  # A column of lists, maps or structs: what is below it is told of its own.
    return told | {
        "distinct_count": column["distinct_count"],
        # What has no NaNs by its type has none.
        "nan_count": column["nan_count"] if column["type"] in _FLOATS else 0,
        "min": column["minimum"],
        "max": column["maximum"],
    }


def _same(told: Any, known: Any, type_: str) -> bool:
    if told is None or known is None:
        return told is known
    if type_.startswith("timestamp") and isinstance(told, str):
        if isinstance(known, str) and known.startswith("us:"):
            # A year that Python's datetime does not reach.
            known = f"+{np.datetime64(int(known[3:]), 'us')}"
        told = _FRACTION.sub(lambda match: f"{match[1]}.{(match[2] or '')[:6]:0<6}", told)
    elif type_.startswith("time") and isinstance(told, str):
        told = _FRACTION.sub(lambda match: f"{match[1]}.{(match[2] or '')[:6]:0<6}", f"T{told}")
        known = known if str(known).startswith("T") else f"T{known}"
    elif isinstance(told, str) and type_.startswith(("binary", "fixed_size_binary")):
        told = _binary(bytes.fromhex(told))
    elif isinstance(told, float) or isinstance(known, float):
        # Integers that what is known could only hold as floats are told exactly.
        return float(told) == float(known)
    return str(told) == str(known)


def is_about(column: dict[str, Any], distinct: int) -> bool:
    """Whether the number of distinct values is told as an estimate, and is within four standard errors."""
    told = column["distinct_count"]
    return column["distinct_count_guarantee"] == "estimate" and abs(told - distinct) <= _ESTIMATE_ERROR * distinct


def _binary(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"x:{data.hex()}"
    return text if text.isprintable() else f"x:{data.hex()}"
