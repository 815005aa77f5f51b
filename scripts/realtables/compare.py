"""Comparison of `metastore profile --json` with the truth: statistics from other readers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_RENAMED = {"uSeR_Id_1": "uSeR_Id"}
"""Columns that the truth's reader renamed, because it ignores case and the table has `user_id`, too."""
_ESTIMATE_ERROR = 0.065
"""Four times the standard error of a distinct sketch."""
_FLOATS = ("halffloat", "float", "double")
_FRACTION = re.compile(r"(T\d\d:\d\d:\d\d)(?:\.(\d+))?Z?$")


def differences(answer: dict[str, Any], truth: dict[str, Any]) -> list[str]:
    """Return the differences between a profile and the truth.

    An empty list means there are none.

    Row count, columns, nulls, NaNs, distinct values, minima and maxima are compared.
    """
    problems = []
    if answer["row_count"] != truth["row_count"]:
        problems.append(f"{answer['row_count']} rows, not {truth['row_count']}")
    columns = {column["column"]: column for column in answer["columns"]}
    for true_path, true_statistics in truth["columns"].items():
        path = _RENAMED.get(true_path, true_path)
        if path not in columns:
            problems.append(f"{path} is missing")
            continue
        profiled_column = _as_truth(columns[path])
        if "union" in truth.get("arrow_types", {}).get(true_path, ""):
            # The truth has a union as texts, and the profile has it as a struct: only the counts can be compared.
            profiled_column = {
                "value_count": profiled_column["value_count"],
                "null_count": profiled_column["null_count"],
            }
        problems += [
            f"{path}: {key} is {profiled_column[key]!r}, not {value!r}"
            for key, value in true_statistics.items()
            if key in profiled_column and not _same(profiled_column[key], value, columns[path]["type"])
            if key != "distinct_count" or not is_about(columns[path], value)
        ]
    top = {_RENAMED.get(path, path).partition(".")[0] for path in truth["columns"]}
    problems += [f"{path} is unexpected" for path in columns if path.partition(".")[0] not in top]
    return problems


def _rows(column: dict[str, Any]) -> int:
    return int(column["value_count"] or 0) + int(column["null_count"] or 0)


def _as_truth(column: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics of a profiled column with the keys of the truth.

    The `value_count` of the truth includes nulls.
    """
    counts = {"value_count": _rows(column), "null_count": column["null_count"]}
    if column["frequencies"] == "absent" and column["distinct_count"] is None:
        return counts  # This is a column of lists, maps or structs. Their fields are separate columns.
    return counts | {
        "distinct_count": column["distinct_count"],
        # The truth has 0 for types that have no NaN.
        "nan_count": column["nan_count"] if column["type"] in _FLOATS else 0,
        "min": column["minimum"],
        "max": column["maximum"],
    }


def _same(profiled_value: Any, true_value: Any, type_: str) -> bool:
    """Return whether the profile and the truth have the same value.

    The two have different texts in JSON for the same value of some types, such as times.
    """
    if profiled_value is None or true_value is None:
        return profiled_value is true_value
    if type_.startswith("timestamp") and isinstance(profiled_value, str):
        if isinstance(true_value, str) and true_value.startswith("us:"):
            # The truth has microseconds for years that Python's datetime does not support.
            true_value = f"+{np.datetime64(int(true_value[3:]), 'us')}"
        profiled_value = _FRACTION.sub(lambda match: f"{match[1]}.{(match[2] or '')[:6]:0<6}", profiled_value)
    elif type_.startswith("time") and isinstance(profiled_value, str):
        profiled_value = _FRACTION.sub(lambda match: f"{match[1]}.{(match[2] or '')[:6]:0<6}", f"T{profiled_value}")
        true_value = true_value if str(true_value).startswith("T") else f"T{true_value}"
    elif isinstance(profiled_value, str) and type_.startswith(("binary", "fixed_size_binary")):
        profiled_value = _binary(bytes.fromhex(profiled_value))
    elif isinstance(profiled_value, float) or isinstance(true_value, float):
        # The truth has some integers as floats, where the profile has the exact integer.
        return float(profiled_value) == float(true_value)
    return str(profiled_value) == str(true_value)


def is_about(column: dict[str, Any], distinct: int) -> bool:
    """Return whether a profiled column's distinct count is an estimate that is close to the true one.

    Close means within four standard errors of `distinct`, the true count.
    """
    estimate = column["distinct_count"]
    return column["distinct_count_guarantee"] == "estimate" and abs(estimate - distinct) <= _ESTIMATE_ERROR * distinct


def _binary(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"x:{data.hex()}"
    return text if text.isprintable() else f"x:{data.hex()}"
