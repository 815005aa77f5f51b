"""References to environment variables in a configuration's texts: `${VAR}` and `${VAR:-default}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr

from metastore_assets.errors import ConfigError
from metastore_assets.messages import remember_secret

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?")
"""`$${` stands for a literal `${`. A `${` without a name and a closing brace is an error."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SECRET_KEYS = {"storage_options", "spark", "catalogs", "catalog", "hidden_key", "options"}
"""Keys below which a variable counts as a secret. Harmless values, such as a region, count as secrets too."""

Model = TypeVar("Model", bound=BaseModel)
Keys = tuple[str, ...]
"""The keys, and the names or positions of list entries, that lead to a value."""


class VariableResolver:
    """An object that replaces references to variables by their values.

    Values that may be secrets are registered, so that messages do not show them.
    """

    def __init__(self, environment: Mapping[str, str], *, preserve_secret_references: bool = False) -> None:
        """Create a resolver.

        Args:
            environment: The values of variables, by name.
            preserve_secret_references: Whether references below keys of secrets, such as `storage_options`, are not
                replaced. This is for a configuration that another process reads, with these variables in its
                environment.
        """
        self._environment = environment
        self._preserves_secrets = preserve_secret_references

    def resolve(self, model: Model, path: Keys = ()) -> Model:
        """Return a copy of a model in which references are replaced, also inside mappings, lists and models.

        The class attribute `references` is a set of field names. References are replaced in these fields, and in extra
        fields: keys that the class does not declare. In the texts of all other fields, `${` is not interpreted.

        Args:
            model: The model.
            path: The keys that lead to the model, for messages.

        Raises:
            ConfigError: In a field that may have references, a variable is not set or a `${` begins no reference.
        """
        references = getattr(type(model), "references", frozenset[str]())

        def replace(name: str, value: Any, *, is_extra: bool = False) -> Any:
            convert = self._resolve_text if is_extra or name in references else self._retain
            return self._resolve_value(value, (*path, name), convert)

        return _with_values(model, replace)

    def _resolve_value(self, value: Any, path: Keys, convert: Callable[[str, Keys], str]) -> Any:
        """Return a copy of a value in which `convert(text, path)` replaces each text, at any depth.

        Keys of mappings are not replaced. A model whose class has the attribute `references` is passed to `resolve`,
        so `convert` is not called for its texts.
        """
        if isinstance(value, str):
            return convert(value, path)
        if isinstance(value, SecretStr):
            return SecretStr(convert(value.get_secret_value(), path))
        if isinstance(value, BaseModel):
            if hasattr(type(value), "references"):
                return self.resolve(value, path)
            return _with_values(value, lambda name, item, **_: self._resolve_value(item, (*path, name), convert))
        if isinstance(value, Mapping):
            return {key: self._resolve_value(item, (*path, str(key)), convert) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(
                self._resolve_value(item, (*path, _entry_name(item, index)), convert)
                for index, item in enumerate(value)
            )
        return value

    def _retain(self, text: str, path: Keys) -> str:
        """Return the text of a field in which `${` is not interpreted.

        The text is unchanged, except with `preserve_secret_references`: then another process replaces references in
        the resolved configuration. So each `${` is escaped as `$${`, which that process turns back into `${`.
        """
        return text.replace("${", "$${") if self._preserves_secrets else text

    def _resolve_text(self, text: str, path: Keys) -> str:
        """Replace the references in a text by values.

        With `preserve_secret_references`, a text whose `path` has a key of secrets is returned unchanged. Another
        process then replaces its references. In the result for any other text, a literal `${` is written as `$${`, so
        that the other process does not take it for a reference.
        """
        if not self._preserves_secrets:
            return self.substitute_text(text, path)
        return text if _SECRET_KEYS & set(path) else self.substitute_text(text, path).replace("${", "$${")

    def substitute_text(self, text: str, path: Keys) -> str:
        """Replace the references in a text by values, and `$${` by `${`.

        Args:
            text: The text.
            path: The keys that lead to the text, for messages. If one of them is in `_SECRET_KEYS`, the values of
                variables are remembered as secrets, and messages do not show them.

        Raises:
            ConfigError: A variable without a default is not set, or a `${` begins no reference.
        """

        def value_of(match: re.Match[str]) -> str:
            """Return the value of a matched reference, or its default; `${` for the escape `$${`."""
            if match[0] == "$${":
                return "${"
            name, default = match["name"], match["default"]
            if name is None:
                raise ConfigError(
                    f"{_path_prefix(path)}`${{` begins a reference to a variable, such as ${{NAME}} or "
                    "${NAME:-default}; write a literal one as `$${`"
                )
            value = self._environment.get(name)
            # As in a shell, the default also replaces an empty value.
            if not value and default is not None:
                return default
            if value is None:
                raise ConfigError(
                    f"{_path_prefix(path)}the environment has no variable {name}: set it, or give a default, "
                    f"as in ${{{name}:-default}}"
                )
            if _SECRET_KEYS & set(path):
                remember_secret(value, f"${{{name}}}")
            return value

        return _REFERENCE.sub(value_of, text)


def substitute(value: Any, environment: Mapping[str, str]) -> Any:
    """Return a copy of a value in which all references are replaced, also inside mappings and lists.

    If a text is exactly one reference, its value is parsed as in YAML, and may become a number or a boolean.

    Raises:
        ConfigError: A variable is not set, or a `${` begins no reference.
    """
    if isinstance(value, str):
        if "${" not in value:
            return value
        match = _REFERENCE.fullmatch(value)
        text = VariableResolver(environment).substitute_text(value, ())
        return _scalar(text) if match is not None and match["name"] else text
    if isinstance(value, Mapping):
        return {key: substitute(item, environment) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(substitute(item, environment) for item in value)
    return value


def _scalar(text: str) -> str | int | float | bool:
    """Parse a number or boolean as YAML does.

    Any other text is returned unchanged.
    """
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if set(text) & set(".eE") else int(text)
    return text


def _with_values(model: Model, replace: Callable[..., Any]) -> Model:
    """Return a copy of the model in which each field that was set has the value `replace(name, value)`.

    Keys that are no fields of the model have the value `replace(name, value, is_extra=True)`.
    """
    names = [name for name in type(model).model_fields if name in model.model_fields_set]
    fields = {name: replace(name, getattr(model, name)) for name in names}
    extra_fields = {name: replace(name, value, is_extra=True) for name, value in (model.model_extra or {}).items()}
    return model.model_copy(update={**fields, **extra_fields})


def required_variables(value: Any) -> set[str]:
    """Return the names of the variables to which a text, mapping or list refers without a default."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return {name for item in value for name in required_variables(item)}
    matches = _REFERENCE.finditer(value) if isinstance(value, str) else ()
    return {match["name"] for match in matches if match["name"] and match["default"] is None}


def has_reference(text: str) -> bool:
    """Return whether a text refers to a variable."""
    return any(match["name"] for match in _REFERENCE.finditer(text))


def env_vars_to_references(value: Any) -> Any:
    """Return a copy of a value in which Dagster's `EnvVar("X")` is the text `${X}`.

    It is replaced inside mappings and lists, too. The same holds for `EnvVar.int("X")`.
    """
    name = getattr(value, "env_var_name", None) if isinstance(value, str | int) else None
    if name is not None:
        return f"${{{name}}}"
    if isinstance(value, Mapping):
        return {key: env_vars_to_references(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(env_vars_to_references(item) for item in value)
    return value


def _entry_name(value: object, index: int) -> str:
    """Return the name by which messages refer to a list entry: the entry's name, or else its index."""
    return str(getattr(value, "database", None) or getattr(value, "name", index))


def _path_prefix(path: Keys) -> str:
    """Return a prefix for error messages with the place of a value in the configuration.

    Example: `table 'orders': uri: `.
    """
    if not path:
        return ""
    for key, subject in (("tables", "table"), ("databases", "database")):
        if path[0] == key and len(path) > 1:
            return f"{subject} {path[1]!r}: {'.'.join(path[2:])}: "
    return f"{'.'.join(path)}: "
