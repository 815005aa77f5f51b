"""What is wrong with a configuration, in words: the table by its name, the key, the value, and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from metastore_assets.config.described import DescribedConfig
from metastore_assets.messages import close_names, listed

Place = tuple[int | str, ...]
Problem = Mapping[str, Any]
"""One of `ValidationError.errors()`."""

_SHOWN = 60
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "dict_type": "a mapping",
    "list_type": "a list",
    "string_too_short": "text that is not empty",
}


def explain(
    raw: Mapping[Any, Any], error: ValidationError, model: type[BaseModel], *, quotes_unknown: bool = True
) -> str:
    """The problems that the model has with `raw`, each as `table 'orders': columns.price.histogram = 5: …`.

    `quotes_unknown`: whether values of keys that do not exist are quoted, which may be secrets under a misspelt name.
    """
    found: dict[Place, list[Problem]] = {}
    for problem in error.errors(include_url=False):
        found.setdefault(tuple(_place(raw, problem)), []).append(problem)
    # What is none of several types is a problem of each: the one that says where inside says all.
    inner = {place[:length] for place in found for length in range(1, len(place))}
    return "; ".join(
        _told(raw, place, problems, model, quotes_unknown=quotes_unknown)
        for place, problems in found.items()
        if place not in inner
    )


def _place(raw: Any, problem: Problem) -> Iterator[int | str]:
    """The keys that lead to a problem: pydantic also names the types that it tried, and marks keys that are no text."""
    for part in problem["loc"]:
        keys = raw if isinstance(raw, Mapping) else range(len(raw)) if isinstance(raw, list) else ()
        if part in keys:
            raw = raw[part]
            yield part
    if problem["type"] == "missing":
        yield problem["loc"][-1]


def _told(
    raw: Mapping[Any, Any], place: Place, problems: list[Problem], model: type[BaseModel], *, quotes_unknown: bool
) -> str:
    subject, key = _subject(raw, place)
    where = f"{subject}: {key}" if subject and key else subject or key
    if problems[0]["type"] == "missing":
        return f"{where} is missing"
    # Of a table or a whole file that contradicts itself, the reason names what is at fault; secrets are not told.
    told = (key or problems[0]["type"] == "model_type") and not {"storage_options", "hidden_key"} & set(place)
    if problems[0]["type"] == "extra_forbidden":
        told = told and quotes_unknown
    value = _shown(problems[0]["input"]) if told else ""
    said = _reason(problems, place, model)
    return f"{where}{f' = {value}' if value else ''}: {said}" if where else said


def _subject(raw: Mapping[Any, Any], place: Place) -> tuple[str, str]:
    """Which table or database it is about, and the path of the key within it."""
    if place[:1] == ("databases",) and len(place) > 1 and isinstance(place[1], int):
        database = raw["databases"][place[1]]
        named = database.get("database") if isinstance(database, Mapping) else place[1]
        return f"database {named!r}", ".".join(map(str, place[2:]))
    if place[:1] != ("tables",) or len(place) < 2 or not isinstance(place[1], int):
        return "", ".".join(map(str, place))
    table = raw["tables"][place[1]]
    name, uri = (table.get(key) if isinstance(table, Mapping) else None for key in ("name", "uri"))
    where = f" (uri {uri!r})" if isinstance(uri, str) else ""
    subject = f"table {name!r}" if isinstance(name, str) else f"table number {place[1] + 1}{where}"
    return subject, ".".join(map(str, place[2:]))


def _shown(value: Any) -> str:
    """The value, unless it is too long to tell anything."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = repr(value) if isinstance(value, str | list | dict) else str(value)
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN]}…" if isinstance(value, str) else ""


def _reason(problems: list[Problem], place: Place, model: type[BaseModel]) -> str:
    problem = problems[0]
    if problem["type"] == "extra_forbidden":
        keys = _keys(_model_at(place[:-1], model))
        return f"no such key; there are: {listed(keys)}" + close_names(str(place[-1]), keys, "")
    if problem["type"] == "invalid_key" or problem["loc"][-1:] == ("[key]",):
        return "a key must be text: write it in quotes"
    expected = [_expected(one, place, model) for one in problems]
    if all(expected):
        return f"must be {' or '.join(filter(None, dict.fromkeys(expected)))}"
    return problem["msg"].removeprefix("Value error, ")


def _expected(problem: Problem, place: Place, model: type[BaseModel]) -> str | None:
    context = problem.get("ctx") or {}
    if problem["type"] == "model_type":
        return f"a mapping of the keys {', '.join(_keys(_model_at(place, model)))}"
    if problem["type"] == "literal_error":
        return str(context["expected"])
    if problem["type"] == "greater_than_equal":
        return f"{context['ge']} or more"
    return _EXPECTED.get(problem["type"])


def _model_at(place: Place, model: type[BaseModel]) -> type[BaseModel]:
    """The model whose keys are allowed at a place: keys of mappings and positions in lists name none."""
    for part in place:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        if field is not None:
            model = next(_models(field.annotation), model)
    return model


def _keys(model: type[BaseModel]) -> list[str]:
    """The keys of a model as they are written: what says which table or database it is comes first."""
    common = DescribedConfig.model_fields if issubclass(model, DescribedConfig) else {}
    fields = sorted(model.model_fields.items(), key=lambda named: named[0] in common)
    return [field.alias or name for name, field in fields]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
