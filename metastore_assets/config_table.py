"""What `metastore.yaml` says of one table, or of all tables of a database, as pydantic models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from metastore_assets.config_check_entries import NamedCheck, TableChecks, named_checks
from metastore_assets.config_file import name_of
from metastore_assets.config_policy import ColumnPolicy, ConfigModel, References
from metastore_assets.config_variables import has_reference
from metastore_assets.errors import ConfigError, PredicateError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


class SensorConfig(ConfigModel):
    """How often the table's commit sensor looks, in seconds."""

    interval: int = Field(default=30, ge=1)


class CatalogConfig(ConfigModel):
    """A catalog: its kind, and whatever properties pyiceberg takes for it (`uri`, `warehouse`, `token`, …)."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    type: Literal["sql", "rest", "glue", "hive"]
    name: str = ""
    """Its key under `catalogs`, which catalogs in SQL databases have their tables under."""

    @property
    def properties(self) -> dict[str, str]:
        """All keys but the kind and the name, as pyiceberg takes them."""
        return {key: str(_text(value)) for key, value in (self.model_extra or {}).items()}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Kind and name: properties may be secrets."""
        return [("type", self.type), ("name", self.name)]


class DescribedConfig(ConfigModel):
    """What may be said of a table, or of all tables of a database alike."""

    storage_options: dict[str, str] = Field(default_factory=dict, repr=False)
    """Object-store settings for the table itself, as the format's library names them (`aws_region`, …)."""
    relocate: dict[str, str] = Field(default_factory=dict)
    """Of a moved table: recorded location prefixes and where the files lie now. The longest one that fits counts."""
    allow: tuple[str, ...] = ()
    """Prefixes of locations outside of the table's own store that its metadata may name."""
    confine: bool = False
    """Whether only what is below the table's own location is read, whatever `allow` and `relocate` say."""
    columns: dict[str, ColumnPolicy] = Field(default_factory=dict)
    """Policy by column (dotted leaf path). The key `default` is the policy of every column not named."""
    statistics: References = ()
    """User-defined statistics of all columns of the types that they are for, where `columns` says nothing else."""
    checks: TableChecks = ()
    """What has to be true of the table; those of columns are under `columns`."""
    sensor: SensorConfig = SensorConfig()

    @field_validator("allow", mode="before")
    @classmethod
    def _prefixes(cls, value: Any) -> Any:
        return listed(value)

    @model_validator(mode="after")
    def _lists_have_values(self) -> Self:
        for column in self.columns:
            policy = self.policy(column)
            if policy.needs_lists and (policy.frequencies == "off" or policy.values == "hidden"):
                against = "frequencies: off" if policy.frequencies == "off" else "values: hidden"
                key = policy.needs_lists
                raise ValueError(
                    f"columns.{column}: `{key}: on` takes a list of all values, and `{against}` keeps none: "
                    f"leave that out, or give the column `{key}: off`"
                )
            if policy.values == "hidden" and self.columns[column].membership == "on" and column != "default":
                raise ValueError(
                    f"columns.{column}: `membership: on` would tell of any value whether it is there, and `values: "
                    "hidden` keeps nothing that does: leave one of them out"
                )
            if policy.needs_lists and policy.is_printed:
                raise ValueError(
                    f"columns.{column}: `{policy.needs_lists}: on` takes a list of all values, and "
                    "`algorithm: fingerprints` keeps those that occur at least twice: `algorithm: lists` keeps all"
                )
            given = self.columns[column].model_fields_set
            if (
                "algorithm" in given
                and policy.algorithm in ("lists", "fingerprints")
                and policy.frequencies != "repeated"
            ):
                raise ValueError(
                    f"columns.{column}: `algorithm: {policy.algorithm}` is for `frequencies: repeated`, and it has "
                    f"`frequencies: {policy.frequencies}`: leave the algorithm out, or change the frequencies"
                )
        return self

    @model_validator(mode="after")
    def _checks_have_names(self) -> Self:
        if "default" in self.columns and self.columns["default"].checks:
            raise ValueError("columns.default.checks: a check is of one column: give it under the column's name")
        self.named_checks()
        return self

    def named_checks(self) -> list[NamedCheck]:
        """All checks of the table and of its columns, in the order of the configuration."""
        return named_checks(self.checks, {column: policy.checks for column, policy in self.columns.items()})

    def policy(self, column: str) -> ColumnPolicy:
        """The policy of the column with this dotted leaf path: its own keys over `default`'s over the built-in ones.

        Values inside a struct, list or map are hidden where its own are.
        """
        policy = self.columns.get("default", ColumnPolicy())
        if "statistics" not in policy.model_fields_set:
            policy = policy.model_copy(update={"statistics": self.statistics})
        own = self.columns.get(column) if column != "default" else None
        if own is not None:
            policy = policy.model_copy(update={key: getattr(own, key) for key in own.model_fields_set - {"checks"}})
        # What is inside a column is as hidden as the column.
        if any(each.values == "hidden" and column.startswith(f"{name}.") for name, each in self.columns.items()):
            policy = policy.model_copy(update={"values": "hidden"})
        # Every list of all values gives ranks; by partition it is kept beside it.
        if policy.needs_lists and policy.frequencies == "auto":
            policy = policy.model_copy(update={"frequencies": "all"})
        if policy.needs_lists and policy.is_open:
            policy = policy.model_copy(update={"algorithm": "lists"})
        return policy

    @property
    def hides_values(self) -> bool:
        """Whether a policy hides values of some column."""
        return any(policy.values == "hidden" for policy in self.columns.values())


class TableConfig(DescribedConfig):
    """One table to keep statistics of: at a `uri`, or under its name `table` in a `catalog`."""

    name: str
    """Of a table in a catalog by default its name there, with `_` for dots."""
    uri: str = Field(min_length=1)
    """`catalog://<catalog>/<table>` for a table in a catalog."""
    catalog: str | CatalogConfig | None = None
    """A name under `catalogs` (or `default`); its settings once the configuration is loaded."""
    identifier: str | None = Field(default=None, alias="table")
    """Database and name in the catalog, with dots between: `db.sales`."""
    format: Literal["delta", "files", "iceberg", "hudi"] | None = None
    """Detected from what lies at `uri` when absent, or as the catalog says."""
    at: str | None = None
    """The state that is meant: a version (Delta), a branch, tag or snapshot id (Iceberg), an instant (Hudi), or a time
    in ISO 8601, for the newest state committed up to then. Absent: the newest."""
    partitions: str | dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By partition column, patterns (`2024-*`) of which a value must fit one; or a condition on partition columns
    (`day >= current_date - 90`). Other partitions are left out, and their folders are not listed."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Reader options of the format. Files: `template` (`{year:int}/{month}`) and `kind` (of files whose names do not
    tell); of CSV files also `header`, `delimiter`, `quote`, `escape`, `escape_unquoted`, `encoding`, `null_values`,
    `skip_initial_space`, `skip_blank_lines`, `empty_text`, `columns`."""
    declared: dict[str, str] = Field(default_factory=dict, alias="schema")
    """Of plain files: types by column (dotted path) that count instead of those that the files say or are found to fit,
    as SQL (`decimal(10,2)`) or statistics (`decimal128(10, 2)`) name them."""
    _hidden_key: bytes | None = PrivateAttr(None)
    _database: str | None = PrivateAttr(None)
    _listed: str | None = PrivateAttr(None)
    _gone: str | None = PrivateAttr(None)

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

    @field_validator("partitions", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        """A pattern alone stands for a list of one. YAML reads a bare 2024 or date as something else than text."""
        if not isinstance(value, Mapping):
            return value
        lists = {column: given if isinstance(given, list | tuple) else [given] for column, given in value.items()}
        return {column: tuple(map(_text, given)) for column, given in lists.items()}

    @field_validator("partitions")
    @classmethod
    def _parses(cls, value: Any) -> Any:
        if isinstance(value, str):
            from metastore_assets.conditions.sql import parse_sql  # the parser takes 90 ms to be imported

            try:
                parse_sql(value)
            except PredicateError as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator("at", mode="before")
    @classmethod
    def _at_as_text(cls, value: Any) -> Any:
        return value if value is None else _text(value)

    @property
    def hidden_key(self) -> bytes | None:
        """The key that columns' keys for hidden values are made from, where it is known."""
        return self._hidden_key

    def keyed(self, key: bytes) -> TableConfig:
        """The same table with that key."""
        copy = self.model_copy()
        copy._hidden_key = key
        return copy

    @property
    def database(self) -> str | None:
        """Which entry of the configuration it is one of, where that is of a whole database: `<catalog>.<database>`."""
        return self._database

    @property
    def told_format(self) -> str | None:
        """The format, as far as it is known without looking at the table: configured, or as its catalog lists it."""
        return self.format or self._listed

    def of_database(self, database: str) -> TableConfig:
        """The same table as one of a database."""
        copy = self.model_copy()
        copy._database = database
        return copy

    @property
    def gone(self) -> str | None:
        """Why its catalog does not have it any more; None while it has."""
        return self._gone

    def listed_as(self, format_: str | None, gone: str | None = None) -> TableConfig:
        """The same table with the format that its catalog lists it with, or why it does not."""
        copy = self.model_copy()
        copy._listed, copy._gone = format_, gone
        return copy

    def policies_of_unknown_columns(self, known: set[str]) -> list[str]:
        """Names under `columns` that are no column of the table: a typing error that would else be ignored.

        What is said of all tables of a database is of those that have the column.
        """
        return [] if self._database else sorted(set(self.columns) - known - {"default"})


class DatabaseConfig(DescribedConfig):
    """All tables of a database in a catalog, those of now and those to come."""

    catalog: str | CatalogConfig
    """A name under `catalogs` (or `default`); its settings once the configuration is loaded."""
    database: str = Field(min_length=1)
    only: tuple[str, ...] = ()
    """Patterns (`fact_*`) of which a table's name must fit one, where there are any."""
    without: tuple[str, ...] = Field(default=(), alias="except")
    """Patterns of which it must fit none."""
    name: str = "{database}_{table}"
    """What the tables are called here: a text with `{table}` in it, and `{database}` or not."""

    @field_validator("only", "without", mode="before")
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

    def takes(self, table: str) -> bool:
        """Whether a table of that name in the database is meant. Case does not count."""
        name = table.lower()
        fits = [any(fnmatchcase(name, pattern.lower()) for pattern in given) for given in (self.only, self.without)]
        return (fits[0] or not self.only) and not fits[1]

    def table(self, table: str) -> TableConfig:
        """One of its tables, by its name there. Raises ConfigError where no name can be made of that."""
        if "." in table:
            raise ConfigError(f"{table!r} has a dot in its name: what is database and what is table nobody could tell")
        name = self.name.replace("{database}", self.database).replace("{table}", table)
        common = {key: getattr(self, key) for key in DescribedConfig.model_fields}
        identifier = f"{self.database}.{table}"
        try:
            made = TableConfig.model_validate(
                {**common, "name": name_of(name), "catalog": self.catalog, "table": identifier}
            )
        except ValidationError as error:
            problem = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{identifier!r} cannot be called {name!r} here: {problem}") from None
        return made.of_database(self.key)


def listed(value: Any) -> Any:
    """Prefixes of locations; one alone stands for a list of one. An empty one would be the current folder."""
    given = [value] if isinstance(value, str) else value
    if isinstance(given, list | tuple) and not all(isinstance(prefix, str) and prefix.strip() for prefix in given):
        raise ValueError("prefixes of locations, such as s3://bucket/folder/")
    return given


def _text(value: Any) -> Any:
    """What was written without quotes in YAML, as text again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return str(value) if isinstance(value, int | float | date) else value
