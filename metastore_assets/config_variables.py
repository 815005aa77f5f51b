"""`${VAR}` and `${VAR:-default}` in the texts of a configuration, and what they stand for in the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr

from metastore_assets.errors import ConfigError
from metastore_assets.messages import remember_secret

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")
"""`$${` is a `${` that stands for itself; a `${` that no name and `}` follow is a mistake."""
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

        `place` are the keys that lead to it. Raises ConfigError where a variable is not set, or a reference is none.
        """
        # Only what is given: policies distinguish it from defaults, and defaults contain no references.
        given = [name for name in type(model).model_fields if name in model.model_fields_set]
        update = {name: self._value(getattr(model, name), (*place, name)) for name in given}
        extra = {name: self._value(value, (*place, name)) for name, value in (model.model_extra or {}).items()}
        return model.model_copy(update={**update, **extra})

    def _value(self, value: Any, place: Place) -> Any:
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, SecretStr):
            return SecretStr(self._text(value.get_secret_value(), place))
        if isinstance(value, BaseModel):
            return self.resolved(value, place)
        if isinstance(value, Mapping):
            return {key: self._value(own, (*place, str(key))) for key, own in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._value(own, (*place, _called(own, index))) for index, own in enumerate(value))
        return value

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
                    f"{_told(place)}: `${{` begins the name of a variable, such as ${{NAME}} or ${{NAME:-default}}; "
                    "one that is meant as it is is written `$${`"
                )
            value = self._environment.get(name)
            # As in a shell: a variable that is set to nothing has the default too.
            if not value and default is not None:
                return default
            if value is None:
                raise ConfigError(
                    f"{_told(place)}: the environment has no variable {name}: set it, or give a default, "
                    f"as in ${{{name}:-default}}"
                )
            if _SECRET_PLACES & set(place):
                remember_secret(value, f"${{{name}}}")
            return value

        return _REFERENCE.sub(replaced, text)


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


def _told(place: Place) -> str:
    return ".".join(_keys(place))


def _keys(place: Place) -> Iterator[str]:
    if place[:1] == ("tables",) and len(place) > 1:
        yield f"table {place[1]!r}: " + ".".join(place[2:])
    elif place[:1] == ("databases",) and len(place) > 1:
        yield f"database {place[1]!r}: " + ".".join(place[2:])
    else:
        yield from place
