"""`${VAR}` and `${VAR:-default}` in the texts of a configuration, and what they stand for in the environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr

from metastore_assets.errors import ConfigError
from metastore_assets.messages import remember_secret

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")
"""`$${` is a `${` that stands for itself; a `${` that no name and `}` follow is a mistake."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SECRET_PLACES = {"storage_options", "spark", "catalogs", "catalog", "hidden_key", "options"}
"""Keys below which texts may be secrets: a name of a region is taken for one too, which does no harm."""

Model = TypeVar("Model", bound=BaseModel)
Place = tuple[str, ...]


class Variables:
    """The variables of an environment. Which of their values are put where secrets may be is remembered."""

    def __init__(self, environment: Mapping[str, str], *, keep_secrets: bool = False) -> None:
        """With `keep_secrets`, references in places where secrets may be stay as they are, for whoever reads the
        outcome as a configuration with an environment of its own."""
        self._environment = environment
        self._keep = keep_secrets

    def resolved(self, model: Model, place: Place = ()) -> Model:
        """The model with all references in its texts replaced, those in mappings, lists and models inside as well.

        `place` are the keys that lead to it. Fields that are not among the `references` of their model have no
        references any more. Raises ConfigError where a variable is not set, or a reference is none.
        """
        references = getattr(type(model), "references", frozenset[str]())

        def found(name: str, value: Any, *, is_extra: bool = False) -> Any:
            text = self._text if is_extra or name in references else self._plain
            return self._value(value, (*place, name), text)

        return _changed(model, found)

    def _value(self, value: Any, place: Place, text: Callable[[str, Place], str]) -> Any:
        if isinstance(value, str):
            return text(value, place)
        if isinstance(value, SecretStr):
            return SecretStr(text(value.get_secret_value(), place))
        if isinstance(value, BaseModel):
            if hasattr(type(value), "references"):
                return self.resolved(value, place)
            return _changed(value, lambda name, own, **_: self._value(own, (*place, name), text))
        if isinstance(value, Mapping):
            return {key: self._value(own, (*place, str(key)), text) for key, own in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._value(own, (*place, _called(own, at)), text) for at, own in enumerate(value))
        return value

    def _plain(self, text: str, place: Place) -> str:
        """A text without references; where it is to be read again, a `${` in it stands for itself there too."""
        return text.replace("${", "$${") if self._keep else text

    def _text(self, text: str, place: Place) -> str:
        if not self._keep:
            return self._replaced(text, place)
        return text if _SECRET_PLACES & set(place) else self._replaced(text, place).replace("${", "$${")

    def _replaced(self, text: str, place: Place) -> str:
        def replaced(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name, default = match["name"], match["default"]
            if name is None:
                raise ConfigError(
                    f"{_where(place)}`${{` begins the name of a variable, such as ${{NAME}} or ${{NAME:-default}}; "
                    "one that is meant as it is is written `$${`"
                )
            value = self._environment.get(name)
            # As in a shell: a variable that is set to nothing has the default too.
            if not value and default is not None:
                return default
            if value is None:
                raise ConfigError(
                    f"{_where(place)}the environment has no variable {name}: set it, or give a default, "
                    f"as in ${{{name}:-default}}"
                )
            if _SECRET_PLACES & set(place):
                remember_secret(value, f"${{{name}}}")
            return value

        return _REFERENCE.sub(replaced, text)


def replaced_at_once(value: Any, environment: Mapping[str, str]) -> Any:
    """Return the value with all references in its texts replaced, in mappings and lists too.

    A text that is one reference and nothing else counts as if its value stood there without quotes: it may be a number,
    or true or false. Objects other than texts, mappings and lists come back as they are.

    Raises:
        ConfigError: A variable is not set, or a reference is none.
    """
    if isinstance(value, str):
        if "${" not in value:
            return value
        match = _REFERENCE.fullmatch(value)
        text = Variables(environment)._replaced(value, ())
        return _scalar(text) if match is not None and match["name"] else text
    if isinstance(value, Mapping):
        return {key: replaced_at_once(own, environment) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(replaced_at_once(own, environment) for own in value)
    return value


def _scalar(text: str) -> str | int | float | bool:
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if set(text) & set(".eE") else int(text)
    return text


def _changed(model: Model, found: Callable[..., Any]) -> Model:
    """The model with other values in its fields.

    Only in those that are given: policies distinguish them from defaults, and defaults contain no references.
    """
    given = [name for name in type(model).model_fields if name in model.model_fields_set]
    update = {name: found(name, getattr(model, name)) for name in given}
    extra = {name: found(name, value, is_extra=True) for name, value in (model.model_extra or {}).items()}
    return model.model_copy(update={**update, **extra})


def variables_in(value: Any) -> set[str]:
    """The names of the variables that texts refer to without a default, in mappings and lists too."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return {name for own in value for name in variables_in(own)}
    found = _REFERENCE.finditer(value) if isinstance(value, str) else ()
    return {match["name"] for match in found if match["name"] and match["default"] is None}


def has_reference(text: str) -> bool:
    """Whether a text refers to a variable."""
    return any(match["name"] for match in _REFERENCE.finditer(text))


def as_written(value: Any) -> Any:
    """References to the environment in objects as references in texts: Dagster's `EnvVar("X")` is `${X}`.

    Looks into mappings and lists; whatever is no such object comes back as it is.
    """
    name = getattr(value, "env_var_name", None) if isinstance(value, str) else None
    if name is not None:
        return f"${{{name}}}"
    if isinstance(value, Mapping):
        return {key: as_written(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(as_written(own) for own in value)
    return value


def _called(value: object, index: int) -> str:
    """What an entry of a list is called in messages: tables and databases have names."""
    return str(getattr(value, "database", None) or getattr(value, "name", index))


def _where(place: Place) -> str:
    return f"{'.'.join(_keys(place))}: " if place else ""


def _keys(place: Place) -> Iterator[str]:
    if place[:1] == ("tables",) and len(place) > 1:
        yield f"table {place[1]!r}: " + ".".join(place[2:])
    elif place[:1] == ("databases",) and len(place) > 1:
        yield f"database {place[1]!r}: " + ".".join(place[2:])
    else:
        yield from place
