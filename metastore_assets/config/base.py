"""The base class of all models of the configuration, and conversions that several of them share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from metastore_assets.config.errors import explain
from metastore_assets.config.variables import env_vars_to_references, substitute
from metastore_assets.errors import ConfigError


class _ConfigMetaclass(type(BaseModel)):  # type: ignore[misc] # pydantic has no public name for its metaclass
    """The metaclass of models, by which an invalid call `TableConfig(…)` raises ConfigError.

    Pydantic itself would raise ValidationError.
    """

    # Pydantic creates nested models without this call, so it still gets its own errors from them.
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except ValidationError as error:
            raise _config_error(cls, kwargs, error) from None


_METACLASS: Any = _ConfigMetaclass


class ConfigModel(BaseModel, metaclass=_METACLASS):  # type: ignore[metaclass] # its public type is only `type`
    """A section of the configuration: immutable, and validated.

    Invalid values raise ConfigError. So do unknown keys, except in the section of a catalog.
    """

    # `hide_input_in_errors`: values may be secrets. `defer_build`: only the outermost model needs a validator.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    references: ClassVar[frozenset[str]] = frozenset()
    """Names of the fields in which `${VAR}` stays until `MetastoreConfig.resolve` replaces it.

    These are fields whose values may be secrets, or whose variables exist only where tables are refreshed, and fields
    with models that have such fields. In all other fields, `${VAR}` is replaced when the model is created, before its
    value is validated.
    """

    @model_validator(mode="before")
    @classmethod
    def _substitute_variables(cls, value: Any) -> Any:
        """Replace references to environment variables by their values.

        A reference is `${VAR}` or Dagster's `EnvVar`. In the fields named in `references`, and in keys that the class
        does not declare, an `EnvVar` becomes `${VAR}`, and each `${VAR}` stays. A `VariableResolver` replaces it later.
        """
        value = env_vars_to_references(value)
        if not isinstance(value, Mapping):
            return value
        late = {key for name in cls.references for key in (name, cls.model_fields[name].alias) if key}
        all_keys = {key for name, field in cls.model_fields.items() for key in (name, field.alias) if key}
        return {key: _substitute_field(key, item) if key in all_keys - late else item for key, item in value.items()}

    @classmethod
    def model_validate(cls, obj: Any, **settings: Any) -> Self:
        """Create the model from a mapping.

        Args:
            obj: The mapping, as in `metastore.yaml`.
            settings: Further arguments of pydantic's `BaseModel.model_validate`.

        Raises:
            ConfigError: The mapping is invalid.
        """
        try:
            return super().model_validate(obj, **settings)
        except ValidationError as error:
            raise _config_error(cls, obj, error) from None

    @classmethod
    def validate_raw(cls, obj: Any) -> Self:
        """Create the model from a mapping.

        Raises pydantic's ValidationError, which the caller formats.
        """
        return super().model_validate(obj)


def _substitute_field(key: str, value: Any) -> Any:
    try:
        return substitute(value, os.environ)
    except ConfigError as error:
        raise ValueError(f"{key}: {error}") from None


def _config_error(model: Any, raw: Any, error: ValidationError) -> ConfigError:
    mapping = raw if isinstance(raw, Mapping) else {}
    name = mapping.get("name")
    subject = f"table {name!r}: " if isinstance(name, str) and "uri" in model.model_fields else ""
    return ConfigError(f"{subject}{explain(mapping, error, model, quotes_unknown=False)}")


def as_text(value: Any) -> Any:
    """Convert a number, boolean, date or time back to its text in YAML.

    Other values are returned unchanged.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return str(value) if isinstance(value, int | float | date) else value


def validate_prefixes(value: Any) -> Any:
    """Validate a list of location prefixes.

    A single text becomes a list of one.

    Raises:
        ValueError: A prefix is not a text, or is blank, which would mean the current folder.
    """
    prefixes = [value] if isinstance(value, str) else value
    if isinstance(prefixes, list | tuple) and not all(isinstance(item, str) and item.strip() for item in prefixes):
        raise ValueError("prefixes of locations, such as s3://bucket/folder/")
    return prefixes
