"""Messages for errors of validation, with the table, the key, the value, and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from metastore_assets.messages import close_names, join_names

KeyPath = tuple[int | str, ...]
"""The keys and list positions that lead to a value."""
Problem = Mapping[str, Any]
"""One element of the list that pydantic's `ValidationError.errors()` returns."""

_MAX_SHOWN = 60
"""Characters of a value that messages show."""
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_too_short": "text that is not empty",
}


def explain(
    raw: Mapping[Any, Any], error: ValidationError, model: type[BaseModel], *, quotes_unknown: bool = True
) -> str:
    """Format all errors of a validation as one text, separated by semicolons.

    An error reads `table 'orders': columns.price.histogram = 5: <what is allowed>`. An error of a mapping or list is
    left out if there is an error inside it.

    Args:
        raw: The mapping that was validated.
        error: The errors of its validation.
        model: The model that validated it.
        quotes_unknown: Whether values of unknown keys are shown. The value of a misspelt key may be a secret.
    """
    problems_by_path: dict[KeyPath, list[Problem]] = {}
    for problem in error.errors(include_url=False):
        problems_by_path.setdefault(tuple(_key_path(raw, problem)), []).append(problem)
    # A value that fits none of several types has a problem per type. The one with the longest path is most specific.
    outer = {path[:length] for path in problems_by_path for length in range(1, len(path))}
    return "; ".join(
        _explain_problems(raw, path, problems, model, quotes_unknown=quotes_unknown)
        for path, problems in problems_by_path.items()
        if path not in outer
    )


def expected_text(problem: Problem) -> str | None:
    """Return what a value must be, such as `a whole number` or `0 or more`.

    Returns None for problems without such a text.
    """
    context = problem.get("ctx") or {}
    if problem["type"] == "literal_error":
        return str(context["expected"])
    if problem["type"] == "greater_than_equal":
        return f"{context['ge']} or more"
    return _EXPECTED.get(problem["type"])


def message_of(problem: Problem) -> str:
    """Return the message of a problem, without pydantic's prefix `Value error, `."""
    return str(problem["msg"]).removeprefix("Value error, ")


def show_value(value: Any) -> str:
    """Format a value for a message.

    A string, list or mapping has its form in Python; `true`, `false` and `null` have that of YAML. A string that needs
    more than 60 characters is cut, and ends in `…` and its quote. Any other value of that length gives an empty text.
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = repr(value) if isinstance(value, str | list | dict) else str(value)
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[: _MAX_SHOWN - 1]}…{text[-1]}" if isinstance(value, str) else ""


def _key_path(raw: Any, problem: Problem) -> Iterator[int | str]:
    """Yield the keys and list positions that lead to a problem, without pydantic's type names."""
    for part in problem["loc"]:
        keys = raw if isinstance(raw, Mapping) else range(len(raw)) if isinstance(raw, list) else ()
        if part in keys:
            raw = raw[part]
            yield part
    if problem["type"] == "missing":
        yield problem["loc"][-1]


def _explain_problems(
    raw: Mapping[Any, Any], path: KeyPath, problems: list[Problem], model: type[BaseModel], *, quotes_unknown: bool
) -> str:
    """Format all problems of one value as one message: where it is, the value, and what is allowed.

    Values of `storage_options` and `hidden_key` are never shown. The value of an unknown key is shown only if
    `quotes_unknown` is true.

    Args:
        raw: The mapping that was validated.
        path: The keys and list indices that lead to the value.
        problems: The problems of the value, at least one.
        model: The model that validated the mapping.
        quotes_unknown: As for `explain`.
    """
    subject, key = _subject_and_key(raw, path)
    where = f"{subject}: {key}" if subject and key else subject or key
    if problems[0]["type"] == "missing":
        return f"{where} is missing"
    # Without a key the reason names what is wrong. Secrets are never shown.
    is_shown = (key or problems[0]["type"] == "model_type") and not {"storage_options", "hidden_key"} & set(path)
    if problems[0]["type"] == "extra_forbidden":
        is_shown = is_shown and quotes_unknown
    value = show_value(problems[0]["input"]) if is_shown else ""
    reason = _reason(problems, path, model)
    return f"{where}{f' = {value}' if value else ''}: {reason}" if where else reason


def _subject_and_key(raw: Mapping[Any, Any], path: KeyPath) -> tuple[str, str]:
    """Split a path for messages: `("table 'orders'", "columns.price")`.

    Outside of tables and databases, the first text is empty.
    """
    if path[:1] == ("databases",) and len(path) > 1 and isinstance(path[1], int):
        database = raw["databases"][path[1]]
        name = database.get("database") if isinstance(database, Mapping) else path[1]
        return f"database {name!r}", ".".join(map(str, path[2:]))
    if path[:1] != ("tables",) or len(path) < 2 or not isinstance(path[1], int):
        return "", ".".join(map(str, path))
    table = raw["tables"][path[1]]
    name, uri = (table.get(key) if isinstance(table, Mapping) else None for key in ("name", "uri"))
    where = f" (uri {uri!r})" if isinstance(uri, str) else ""
    subject = f"table {name!r}" if isinstance(name, str) else f"table number {path[1] + 1}{where}"
    return subject, ".".join(map(str, path[2:]))


def _reason(problems: list[Problem], path: KeyPath, model: type[BaseModel]) -> str:
    """Return the last part of a message about one value: what is allowed instead, or what is wrong.

    Examples are `must be true or false`, and for an unknown key `no such key; there are: …`.

    Args:
        problems: The problems of the value, at least one.
        path: The keys and list indices that lead to the value.
        model: The model that validated the configuration.
    """
    first = problems[0]
    if first["type"] == "extra_forbidden":
        keys = _yaml_keys(_model_at(path[:-1], model))
        return f"no such key; there are: {join_names(keys)}" + close_names(str(path[-1]), keys, "")
    if first["type"] == "invalid_key" or first["loc"][-1:] == ("[key]",):
        return "a key must be text: write it in quotes"
    expected = [
        f"a mapping of the keys {', '.join(_yaml_keys(_model_at(path, model)))}"
        if problem["type"] == "model_type"
        else expected_text(problem)
        for problem in problems
    ]
    if all(expected):
        return f"must be {' or '.join(filter(None, dict.fromkeys(expected)))}"
    return message_of(first)


def _model_at(path: KeyPath, model: type[BaseModel]) -> type[BaseModel]:
    """Return the model at a path of keys and list positions."""
    for part in path:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        if field is not None:
            model = next(_models_in(field.annotation), model)
    return model


def _yaml_keys(model: type[BaseModel]) -> list[str]:
    """Return the YAML keys of a model's fields: first its own, then the inherited ones."""
    inherited_names = {name for base in model.__mro__[1:] for name in getattr(base, "model_fields", ())}
    fields = sorted(model.model_fields.items(), key=lambda item: item[0] in inherited_names)
    return [field.alias or name for name, field in fields]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
