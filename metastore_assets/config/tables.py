"""What `metastore.yaml` says of one table, or of all tables of a database, as pydantic models."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from pydantic import (
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from metastore_assets.config.described import CatalogConfig, DescribedConfig, as_text
from metastore_assets.config.loading import name_of
from metastore_assets.config.variables import has_reference
from metastore_assets.errors import ConfigError, PredicateError
from metastore_assets.expressions.wildcards import matches_any_pattern
from metastore_assets.messages import listed
from metastore_assets.plugins import TABLE_FORMATS

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


class TableConfig(DescribedConfig):
    """One table to keep statistics of: at a `uri`, or under its name `table` in a `catalog`."""

    references: ClassVar[frozenset[str]] = DescribedConfig.references | {
        *("uri", "catalog", "identifier", "at", "options"),
    }

    name: str
    """Of a table in a catalog by default its name there, with `_` for dots."""
    uri: str = Field(min_length=1)
    """`catalog://<catalog>/<table>` for a table in a catalog."""
    catalog: str | CatalogConfig | None = None
    """A name under `catalogs` (or `default`); its settings once the configuration is loaded."""
    identifier: str | None = Field(default=None, alias="table")
    """Database and name in the catalog, with dots between: `db.sales`."""
    format: str | None = None
    """`delta`, `files`, `hudi`, `iceberg`, or a format that an installed package registers. By default the catalog says
    it, or it is detected."""
    at: str | None = None
    """The state that is meant: a version (Delta), a branch, tag or snapshot id (Iceberg), an instant (Hudi), or a time
    in ISO 8601, for the newest state committed up to then. Absent: the newest."""
    partitions: str | dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By partition column, patterns (`2024-*`) of which a value must fit one; or a condition on partition columns
    (`day >= current_date - 90`). Other partitions are left out, and their folders are not listed."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the format, which the format validates. Files: `template` (`{year:int}/{month}`) and `kind` (of files
    whose names do not tell); of CSV files also `header`, `delimiter`, `quote`, `escape`, `escape_unquoted`,
    `encoding`, `null_values`, `skip_initial_space`, `skip_blank_lines`, `empty_text`, `columns`."""
    declared: dict[str, str] = Field(default_factory=dict, alias="schema")
    """Of plain files: types by column (dotted path) that count instead of those that the files say or are found to fit,
    as SQL (`decimal(10,2)`) or statistics (`decimal128(10, 2)`) name them."""
    _hidden_key: bytes | None = PrivateAttr(None)
    _database: str | None = PrivateAttr(None)
    _listed: str | None = PrivateAttr(None)
    _dropped_reason: str | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _one_place(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or (value.get("catalog") is None and value.get("table") is None):
            return value
        if value.get("catalog") is None or value.get("table") is None:
            raise ValueError(
                "catalog and table go together: the one says where the other is a table; a whole database is "
                "`catalog` and `database`"
            )
        catalog, identifier = getattr(value["catalog"], "name", value["catalog"]), value["table"]
        uri = f"catalog://{catalog}/{identifier}"
        if value.get("uri") not in (None, uri):
            raise ValueError("a table has either a uri, or a catalog and a table")
        named = {} if "name" in value or has_reference(str(identifier)) else {"name": name_of(str(identifier))}
        return {**value, **named, "uri": uri}

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("a letter, then up to 99 letters, digits, `_` or `-`")
        return value

    @field_validator("format")
    @classmethod
    def _registered_format(cls, value: str | None) -> str | None:
        if value is not None and value not in TABLE_FORMATS:
            names = ", ".join(map(repr, TABLE_FORMATS.names()))
            raise ValueError(f"must be {names}, or a format that an installed package registers")
        return value

    @field_validator("partitions", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        """A pattern alone stands for a list of one. YAML reads a bare 2024 or date as something else than text."""
        if not isinstance(value, Mapping):
            return value
        lists = {column: given if isinstance(given, list | tuple) else [given] for column, given in value.items()}
        return {column: tuple(map(as_text, given)) for column, given in lists.items()}

    @field_validator("partitions")
    @classmethod
    def _parses(cls, value: Any) -> Any:
        if isinstance(value, str):
            from metastore_assets.expressions.sql_parser import parse_sql  # the parser takes 90 ms to be imported

            try:
                parse_sql(value)
            except PredicateError as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator("at", mode="before")
    @classmethod
    def _at_as_text(cls, value: Any) -> Any:
        return value if value is None else as_text(value)

    @property
    def hidden_key(self) -> bytes | None:
        """The key that columns' keys for hidden values are made from, where it is known."""
        return self._hidden_key

    def with_hidden_key(self, key: bytes) -> TableConfig:
        """The same table with that key."""
        copy = self.model_copy()
        copy._hidden_key = key
        return copy

    @property
    def database(self) -> str | None:
        """Which entry of the configuration it is one of, where that is of a whole database: `<catalog>.<database>`."""
        return self._database

    @property
    def declared_format(self) -> str | None:
        """The format, as far as it is known without looking at the table: configured, or as its catalog lists it."""
        return self.format or self._listed

    def with_database(self, database: str) -> TableConfig:
        """The same table as one of a database."""
        copy = self.model_copy()
        copy._database = database
        return copy

    @property
    def dropped_reason(self) -> str | None:
        """Why its catalog does not have it any more; None while it has."""
        return self._dropped_reason

    def with_listing(self, format_: str | None, dropped_reason: str | None = None) -> TableConfig:
        """The same table with the format that its catalog lists it with, or why it does not."""
        copy = self.model_copy()
        copy._listed, copy._dropped_reason = format_, dropped_reason
        return copy

    def unknown_policy_columns(self, known: set[str]) -> list[str]:
        """Names under `columns` that are no column of the table: a typing error that would else be ignored.

        What is said of all tables of a database is of those that have the column.
        """
        return [] if self._database else sorted(set(self.columns) - known - {"default"})

    def dropped_columns_warning(self, dropped: Collection[str]) -> str | None:
        """Return what to say of policies for `dropped` columns, which the table had in an earlier version.

        None where the configuration names none of them.
        """
        named = self.unknown_policy_columns(set(self.columns) - set(dropped))
        if not named:
            return None
        keys = listed([f"columns.{name}" for name in named])
        what, effect = ("is for a column", "has") if len(named) == 1 else ("are for columns", "have")
        return (
            f"table {self.name!r}: {keys} {what} that the table no longer has, and {effect} no effect: "
            f"remove {'it' if len(named) == 1 else 'them'} from the configuration, or bring the column back"
        )


class DatabaseConfig(DescribedConfig):
    """All tables of a database in a catalog, those of now and those to come."""

    references: ClassVar[frozenset[str]] = DescribedConfig.references | {"catalog", "database"}

    catalog: str | CatalogConfig
    """A name under `catalogs` (or `default`); its settings once the configuration is loaded."""
    database: str = Field(min_length=1)
    only: tuple[str, ...] = ()
    """Patterns (`fact_*`) of which a table's name must fit one, where there are any."""
    exclude: tuple[str, ...] = Field(default=(), alias="except")
    """Patterns of which it must fit none."""
    name: str = "{database}_{table}"
    """What the tables are called here: a text with `{table}` in it, and `{database}` or not."""

    @field_validator("only", "exclude", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        given = [value] if isinstance(value, str) else value
        if not isinstance(given, list | tuple) or not given or not all(isinstance(one, str) and one for one in given):
            raise ValueError("patterns of tables' names, such as fact_*")
        return tuple(given)

    @field_validator("name")
    @classmethod
    def _names_tables(cls, value: str) -> str:
        left = value.replace("{table}", "", 1).replace("{database}", "", 1)
        if "{table}" not in value or set(left) & set("{}"):
            raise ValueError("a text with {table} in it, and {database} or not")
        return value

    @property
    def key(self) -> str:
        """Tells it from other entries: `<catalog>.<database>`."""
        return f"{getattr(self.catalog, 'name', self.catalog)}.{self.database}"

    def includes(self, table: str) -> bool:
        """Whether a table of that name in the database is meant. Case does not count."""
        is_included = not self.only or matches_any_pattern(table, self.only, ignore_case=True)
        return is_included and not matches_any_pattern(table, self.exclude, ignore_case=True)

    def table(self, table: str) -> TableConfig:
        """One of its tables, by its name there. Raises ConfigError where no name can be made of that."""
        if "." in table:
            raise ConfigError(f"{table!r} has a dot in its name: what is database and what is table nobody could tell")
        name = self.name.replace("{database}", self.database).replace("{table}", table)
        common = {key: getattr(self, key) for key in DescribedConfig.model_fields}
        identifier = f"{self.database}.{table}"
        try:
            made = TableConfig.validate_raw(
                {**common, "name": name_of(name), "catalog": self.catalog, "table": identifier}
            )
        except ValidationError as error:
            problem = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{identifier!r} cannot be called {name!r} here: {problem}") from None
        return made.with_database(self.key)
