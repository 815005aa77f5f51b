"""Lists of checks in `metastore.yaml`: how an entry is read, what is wrong with it, and what checks are called.

An entry is the name of a check, `not_null`, or a mapping of one name to what it takes, `range: {minimum: 0}`, or, where
one setting says all, to that, `null_share: 5%`. Other settings, and the keys that every check may have, may also stand
beside it: `severity: warn`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, SerializeAsAny, ValidationError

from metastore_assets.config.check import Check, Level
from metastore_assets.messages import close_names, listed

_SHOWN = 60
_COMMON = frozenset(Check.model_fields)
_EXPECTED = {
    "int_type": "a whole number",
    "string_type": "text",
    "tuple_type": "a list",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}


def parse_check(given: Any, level: Level) -> Check:
    """One entry of a list of checks. Raises ValueError: says what is wrong, and what there is."""
    if isinstance(given, Check):
        return _at_level(given, level)
    from metastore_assets.config.check_models import KINDS  # most configurations are without

    if isinstance(given, str):
        given = {given: None}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ValueError("the name of a check, or a mapping of its name to its settings")
    named = [key for key in given if key in KINDS]
    if len(named) > 1:
        raise ValueError(f"names {listed(named)}: one check for each entry of the list")
    if not named:
        wrong = next((key for key in given if key not in _COMMON), None)
        what = "names no check" if wrong is None else f"no check {wrong!r}"
        near = "" if wrong is None else close_names(wrong, _names(level), "")
        raise ValueError(f"{what}; there are: {listed(_names(level))}{near}")
    (kind,) = named
    model, settings = KINDS[kind], given[kind]
    if settings is None:
        settings = {}
    elif not isinstance(settings, Mapping):
        if model.main is None:
            raise ValueError(f"{kind} takes {_settings(model)}")
        settings = {model.main: settings}
    beside = {key: own for key, own in given.items() if key != kind}
    twice = sorted(set(beside) & set(settings))
    if twice:
        raise ValueError(f"{kind}: {twice[0]} is there twice")
    try:
        return _at_level(model.model_validate({**settings, **beside}), level)
    except ValidationError as error:
        raise ValueError("; ".join(dict.fromkeys(_told(kind, model, one) for one in error.errors()))) from None


def _at_level(check: Check, level: Level) -> Check:
    if check.level != level:
        where = "under a column's key `checks`" if check.level == "column" else "under the table's key `checks`"
        raise ValueError(f"{check.kind} is a check of a {check.level}, and stands {where}")
    if check.partitions and not check.by_partition:
        raise ValueError(f"{check.kind} is of the table as a whole: leave out partitions")
    return check


def _names(level: Level) -> list[str]:
    from metastore_assets.config.check_models import KINDS

    return [name for name, model in KINDS.items() if model.level == level]


def _settings(model: type[Check]) -> str:
    own = [name for name in model.model_fields if name not in _COMMON]
    return f"a mapping of {listed(own)}" if own else "no setting"


def _told(kind: str, model: type[Check], problem: Mapping[str, Any]) -> str:
    key = next((part for part in problem["loc"] if isinstance(part, str)), None)
    where = kind if key is None else f"{kind}.{key}"
    if problem["type"] == "missing":
        return f"{where} is missing"
    if problem["type"] == "extra_forbidden":
        there = [name for name in model.model_fields if name not in _COMMON]
        return f"{where}: no such key; there are: {listed([*there, *sorted(_COMMON)])}"
    shown = repr(problem["input"])
    value = f" = {shown}" if key is not None and len(shown) <= _SHOWN else ""
    return f"{where}{value}: {_reason(problem)}"


def _reason(problem: Mapping[str, Any]) -> str:
    context = problem.get("ctx") or {}
    if problem["type"] == "literal_error":
        return f"must be {context['expected']}"
    if problem["type"] == "greater_than_equal":
        return f"must be {context['ge']} or more"
    if problem["type"] == "too_short":
        return "must not be empty"
    expected = {
        "int_type": "a whole number",
        "string_type": "text",
        "tuple_type": "a list",
        "bool_type": "true or false",
    }
    if problem["type"] in expected:
        return f"must be {expected[problem['type']]}"
    return str(problem["msg"]).removeprefix("Value error, ")


def _of_table(given: Any) -> Check:
    return parse_check(given, "table")


def _of_column(given: Any) -> Check:
    return parse_check(given, "column")


TableChecks: TypeAlias = tuple[Annotated[SerializeAsAny[Check], BeforeValidator(_of_table)], ...]
ColumnChecks: TypeAlias = tuple[Annotated[SerializeAsAny[Check], BeforeValidator(_of_column)], ...]


@dataclass(frozen=True)
class NamedCheck:
    """A check of a table, and what it is called."""

    name: str
    """Letters, digits and `_`; distinct within the table, whatever their case."""
    column: str | None
    """Dotted leaf path; None for a check of the table."""
    check: Check


def named_checks(table: tuple[Check, ...], columns: Mapping[str, tuple[Check, ...]]) -> list[NamedCheck]:
    """The checks of a table, then those of its columns, each with a name. Raises ValueError for a name given twice.

    One that is given none is called by its column and its kind; later ones that would be called the same are numbered.
    """
    every: list[tuple[str | None, Check]] = [(None, check) for check in table]
    every += [(column, check) for column, checks in columns.items() for check in checks]
    taken: set[str] = set()
    for _, check in every:
        if check.name is not None and check.name.lower() in taken:
            raise ValueError(f"two checks have the name {check.name!r}")
        taken |= {check.name.lower()} if check.name is not None else set()
    found = []
    for column, check in every:
        name = check.name
        if name is None:
            plain = check.kind if column is None else f"{re.sub(r'[^A-Za-z0-9_]', '_', column)[:60]}_{check.kind}"
            numbered = [plain, *(f"{plain}_{number}" for number in range(2, len(every) + 2))]
            name = next(own for own in numbered if own.lower() not in taken)
            taken.add(name.lower())
        found.append(NamedCheck(name, column, check))
    return found
