"""`metastore.yaml` as pydantic models: the root, catalogs, tables, databases, and the policies of columns."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, ValidationError, field_validator, model_validator

from metastore_assets.config.base import ConfigModel, as_text, validate_prefixes
from metastore_assets.config.emr import EmrServerlessConfig, emr_obstacle
from metastore_assets.config.errors import message_of
from metastore_assets.config.file import separate_databases, table_name_for
from metastore_assets.config.policy import HIDDEN_KEY_MIN_LENGTH, ClassReferences, ColumnPolicy
from metastore_assets.config.variables import VariableResolver, has_reference
from metastore_assets.errors import ConfigError, PredicateError
from metastore_assets.expressions.wildcards import matches_any_pattern
from metastore_assets.messages import close_names, join_names
from metastore_assets.plugins import TABLE_FORMATS

EMBEDDED_CATALOG = "default"
"""Name of the Iceberg catalog that exists without being configured."""

SensorStatus: TypeAlias = Literal["running", "stopped", "absent"]
"""`running`: Dagster starts the sensor. `stopped`: a person starts it. `absent`: Dagster does not have it."""

_SQLITE = "sqlite:///"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


class SensorConfig(ConfigModel):
    """Dagster's sensor of a table or a database."""

    interval: int = Field(default=30, ge=1)
    """Seconds between two evaluations."""
    status: SensorStatus | None = None
    """Default: the key `sensors` of the configuration."""


class CatalogConfig(ConfigModel):
    """A catalog: its type, and the properties that pyiceberg takes for it (`uri`, `warehouse`, `token`, …)."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True, defer_build=True)

    references: ClassVar[frozenset[str]] = frozenset({"name"})

    type: Literal["sql", "rest", "glue", "hive"]
    name: str = ""
    """Its key under `catalogs`. SQL catalogs store their tables under this name."""

    @property
    def properties(self) -> dict[str, str]:
        """All keys except the type and the name, as pyiceberg takes them."""
        return {key: str(as_text(value)) for key, value in (self.model_extra or {}).items()}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Type and name only: properties may be secrets."""
        return [("type", self.type), ("name", self.name)]


class SharedTableConfig(ConfigModel):
    """The keys that a table and a whole database have in common."""

    references: ClassVar[frozenset[str]] = frozenset({"storage_options", "path_mapping", "allow", "columns", "sensor"})

    storage_options: dict[str, str] = Field(default_factory=dict, repr=False)
    """Object-store settings for the table itself, as the format's library names them (`aws_region`, …)."""
    path_mapping: dict[str, str] = Field(default_factory=dict)
    """For a moved table: current location by recorded location prefix. The longest matching prefix wins."""
    allow: tuple[str, ...] = ()
    """Location prefixes outside of the table's store that its metadata may name."""
    restrict_to_table_root: bool = False
    """Whether reads outside of the table's location are refused, whatever `allow` and `path_mapping` say."""
    columns: dict[str, ColumnPolicy] = Field(default_factory=dict)
    """Policy by column (dotted leaf path). The key `default` is the policy of every column not named."""
    statistics: ClassReferences = ()
    """User-defined statistics of all columns whose type they support. A policy under `columns` may replace them."""
    checks: tuple[Any, ...] = ()
    """Checks of the table, as written; checks of columns are under `columns`. They are validated by
    `metastore_assets.checks`."""
    sensor: SensorConfig = SensorConfig()
    outputs: Literal["kinds", "table"] = "kinds"
    """The assets in Dagster, besides the table's source. `kinds`: one for its partitions and one for each kind of file.
    `table`: a single one with the metadata of all of them."""

    @field_validator("allow", mode="before")
    @classmethod
    def _prefixes(cls, value: Any) -> Any:
        return validate_prefixes(value)

    @model_validator(mode="after")
    def _consistent_policies(self) -> Self:
        for column in self.columns:
            if problem := self._policy_conflict(column):
                raise ValueError(f"columns.{column}: {problem}")
        return self

    def _policy_conflict(self, column: str) -> str | None:
        policy, configured = self.policy(column), self.columns[column]
        key = policy.enumerating_key
        if key and (policy.frequencies == "off" or policy.values == "hidden"):
            opposite = "frequencies: off" if policy.frequencies == "off" else "values: hidden"
            return f"`{key}: on` needs all values, and `{opposite}` stores none: remove it, or set `{key}: off`"
        if policy.values == "hidden" and configured.value_filter == "on" and column != "default":
            return (
                "`value_filter: on` would reveal whether a value occurs, which `values: hidden` forbids: remove one of "
                "them"
            )
        if key and policy.is_fingerprinted:
            return (
                f"`{key}: on` needs all values, and `algorithm: fingerprints` stores only repeated ones: use "
                "`algorithm: enumeration`"
            )
        is_for_repeated = policy.algorithm in ("enumeration", "fingerprints")
        if "algorithm" in configured.model_fields_set and is_for_repeated and policy.frequencies != "repeated":
            return (
                f"`algorithm: {policy.algorithm}` requires `frequencies: repeated`, and the column has `frequencies: "
                f"{policy.frequencies}`: remove the algorithm, or change the frequencies"
            )
        return None

    @property
    def label(self) -> str:
        """The table or database as messages name it, such as `table 'orders'`."""
        raise NotImplementedError

    def policy(self, column: str, aliases: Sequence[Sequence[str]] | None = None) -> ColumnPolicy:
        """Return the policy of a column: its own keys, else those of `default`, else the built-in ones.

        A column is also hidden if a column that contains it is hidden. The same column may have several paths, because
        backticks around `a.b` depend on the other columns: it is hidden if any of them is, unless its first path says
        otherwise.

        Args:
            column: The dotted path of the column.
            aliases: `LeafColumn.aliases`. None without a schema: then the column counts as contained in every
                configured name that its path begins with, up to a dot.
        """
        policy = self.columns.get("default") or _built_in_policy()
        if "statistics" not in policy.model_fields_set:
            policy = policy.model_copy(update={"statistics": self.statistics})
        configured = self.columns.get(column) if column != "default" else None
        if configured is not None:
            keys = configured.model_fields_set - {"checks"}
            policy = policy.model_copy(update={key: getattr(configured, key) for key in keys})
        if aliases is None:
            aliases = [(name,) for name in self.columns if column == name or column.startswith(f"{name}.")]
        if any(self._is_hidden(names) for names in aliases):
            policy = policy.model_copy(update={"values": "hidden"})
        if policy.enumerating_key and policy.frequencies == "auto":
            policy = policy.model_copy(update={"frequencies": "all"})
        if policy.enumerating_key and policy.is_undecided:
            policy = policy.model_copy(update={"algorithm": "enumeration"})
        return policy

    def _is_hidden(self, names: Sequence[str]) -> bool:
        """Return whether a column is hidden under one of its names. The first name, its path, takes precedence."""
        policies = {name: self.columns[name] for name in names if name != "default" and name in self.columns}
        values = {name: policy.values for name, policy in policies.items() if "values" in policy.model_fields_set}
        return values[names[0]] == "hidden" if names[0] in values else "hidden" in values.values()

    @property
    def named_statistics(self) -> tuple[str, ...]:
        """The classes of user-defined statistics of all columns and of single columns, without duplicates."""
        of_columns = (reference for policy in self.columns.values() for reference in policy.statistics)
        return tuple(dict.fromkeys([*self.statistics, *of_columns]))

    @property
    def hides_values(self) -> bool:
        """Whether a policy hides the values of some column."""
        return any(policy.values == "hidden" for policy in self.columns.values())


SharedTableConfigT = TypeVar("SharedTableConfigT", bound=SharedTableConfig)


@lru_cache(maxsize=1)
def _built_in_policy() -> ColumnPolicy:
    """Return the policy without configuration. Created at first use: pydantic then builds its validator."""
    return ColumnPolicy()


class TableConfig(SharedTableConfig):
    """One table of the Metastore, at a `uri`, or under its name `table` in a `catalog`."""

    references: ClassVar[frozenset[str]] = SharedTableConfig.references | {
        *("uri", "catalog", "identifier", "at", "options"),
    }

    name: str
    """Default for a table in a catalog: its name there, with `_` for dots."""
    uri: str = Field(min_length=1)
    """`catalog://<catalog>/<table>` for a table in a catalog."""
    catalog: str | CatalogConfig | None = None
    """A key of `catalogs`, or `default`; the catalog's settings once the configuration is located."""
    identifier: str | None = Field(default=None, alias="table")
    """Database and table name in the catalog, separated by dots: `db.sales`."""
    format: str | None = None
    """`delta`, `files`, `hudi`, `iceberg`, or a format that an installed package registers. Default: as the catalog
    lists it, or as detected from the files at `uri`."""
    at: str | None = None
    """The snapshot: a version (Delta), a branch, tag or snapshot id (Iceberg), an instant (Hudi), or a time in ISO
    8601, which selects the newest snapshot committed up to then. Default: the newest."""
    partitions: str | dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By partition column, patterns (`2024-*`) of which a value must match one; or a condition on partition columns
    (`day >= current_date - 90`). Other partitions are ignored, and their folders are not listed."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the format, which the format validates. For plain files: `template` (`{year:int}/{month}`) and
    `kind` (of files without a telling extension); for CSV files also `header`, `delimiter`, `quote`, `escape`,
    `escape_unquoted`, `encoding`, `null_values`, `skip_initial_space`, `skip_blank_lines`, `empty_text`, `columns`."""
    declared: dict[str, str] = Field(default_factory=dict, alias="schema")
    """For plain files: types by column (dotted path) that replace those of the files, written as in SQL
    (`decimal(10,2)`) or in Arrow (`decimal128(10, 2)`)."""
    _hidden_key: bytes | None = PrivateAttr(None)
    _database: str | None = PrivateAttr(None)
    _catalog_format: str | None = PrivateAttr(None)
    _dropped_reason: str | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _one_location(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or (value.get("catalog") is None and value.get("table") is None):
            return value
        if value.get("catalog") is None or value.get("table") is None:
            raise ValueError(
                "a table in a catalog needs both `catalog` and `table`; a whole database needs `catalog` and `database`"
            )
        catalog, identifier = getattr(value["catalog"], "name", value["catalog"]), value["table"]
        uri = f"catalog://{catalog}/{identifier}"
        if value.get("uri") not in (None, uri):
            raise ValueError("a table has either a uri, or a catalog and a table")
        has_name = "name" in value or has_reference(str(identifier))
        return {**value, **({} if has_name else {"name": table_name_for(str(identifier))}), "uri": uri}

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
    def _pattern_lists(cls, value: Any) -> Any:
        """Wrap single patterns in tuples. YAML reads a bare 2024 or date as a number or a date."""
        if not isinstance(value, Mapping):
            return value
        lists = {column: item if isinstance(item, list | tuple) else [item] for column, item in value.items()}
        return {column: tuple(map(as_text, patterns)) for column, patterns in lists.items()}

    @field_validator("partitions")
    @classmethod
    def _parses(cls, value: Any) -> Any:
        if isinstance(value, str):
            from metastore_assets.expressions.sql_parser import parse_sql  # importing the parser takes 90 ms

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
    def label(self) -> str:
        """The table as messages name it: `table 'orders'`."""
        return f"table {self.name!r}"

    @property
    def hidden_key(self) -> bytes | None:
        """The key from which the keys of columns with hidden values are derived; None without `with_hidden_key`."""
        return self._hidden_key

    def with_hidden_key(self, key: bytes) -> TableConfig:
        """Return the table with a key for hidden values."""
        copy = self.model_copy()
        copy._hidden_key = key
        return copy

    @property
    def database(self) -> str | None:
        """The database entry, as `<catalog>.<database>`, that the table belongs to; None for a table of its own."""
        return self._database

    def with_database(self, database: str) -> TableConfig:
        """Return the table as a member of a database entry (`<catalog>.<database>`)."""
        copy = self.model_copy()
        copy._database = database
        return copy

    @property
    def declared_format(self) -> str | None:
        """The configured format, or that of the catalog's listing; None if only the table itself says."""
        return self.format or self._catalog_format

    @property
    def dropped_reason(self) -> str | None:
        """Why the catalog no longer has the table; None while it has."""
        return self._dropped_reason

    def with_listing(self, format_: str | None, dropped_reason: str | None = None) -> TableConfig:
        """Return the table with the format of its catalog's listing, or with the reason why that lacks the table."""
        copy = self.model_copy()
        copy._catalog_format, copy._dropped_reason = format_, dropped_reason
        return copy

    def unknown_policy_columns(self, columns: set[str]) -> list[str]:
        """Return the names under the key `columns` that are not among the table\'s `columns`: probably misspelt.

        Empty for a table of a database: its policies are meant for those tables that have the column.
        """
        return [] if self._database else sorted(set(self.columns) - columns - {"default"})

    def dropped_columns_warning(self, dropped: Collection[str]) -> str | None:
        """Return a warning about policies for `dropped` columns of an earlier version; None without such policies."""
        names = self.unknown_policy_columns(set(self.columns) - set(dropped))
        if not names:
            return None
        keys = join_names([f"columns.{name}" for name in names])
        what, effect = ("is for a column", "has") if len(names) == 1 else ("are for columns", "have")
        return (
            f"table {self.name!r}: {keys} {what} that the table no longer has, and {effect} no effect: "
            f"remove {'it' if len(names) == 1 else 'them'} from the configuration, or bring the column back"
        )


class DatabaseConfig(SharedTableConfig):
    """All tables of a database in a catalog, including those that are created later."""

    references: ClassVar[frozenset[str]] = SharedTableConfig.references | {"catalog", "database"}

    catalog: str | CatalogConfig
    """A key of `catalogs`, or `default`; the catalog's settings once the configuration is located."""
    database: str = Field(min_length=1)
    only: tuple[str, ...] = ()
    """Patterns (`fact_*`) for names of tables. Default: all tables."""
    exclude: tuple[str, ...] = Field(default=(), alias="except")
    """Patterns for names of tables that are excluded."""
    name: str = "{database}_{table}"
    """Template for the tables' names in the Metastore. It contains `{table}`, and may contain `{database}`."""

    @field_validator("only", "exclude", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        patterns = [value] if isinstance(value, str) else value
        if (
            not isinstance(patterns, list | tuple)
            or not patterns
            or not all(isinstance(item, str) and item for item in patterns)
        ):
            raise ValueError("patterns for names of tables, such as fact_*")
        return tuple(patterns)

    @field_validator("name")
    @classmethod
    def _names_tables(cls, value: str) -> str:
        remainder = value.replace("{table}", "", 1).replace("{database}", "", 1)
        if "{table}" not in value or set(remainder) & set("{}"):
            raise ValueError("a text with {table} in it, and {database} or not")
        return value

    @property
    def label(self) -> str:
        """The database as messages name it: `database 'sales'`."""
        return f"database {self.database!r}"

    @property
    def key(self) -> str:
        """Identifies the database: `<catalog>.<database>`."""
        return f"{getattr(self.catalog, 'name', self.catalog)}.{self.database}"

    def includes(self, table: str) -> bool:
        """Return whether the entry includes the database's table of that name. Ignores case."""
        is_selected = not self.only or matches_any_pattern(table, self.only, ignore_case=True)
        return is_selected and not matches_any_pattern(table, self.exclude, ignore_case=True)

    def table(self, table: str) -> TableConfig:
        """Return the configuration of one of the tables. Raises ConfigError if `name` gives it no valid name.

        Args:
            table: Name of the table in the database.
        """
        if "." in table:
            raise ConfigError(f"the name {table!r} contains a dot, which separates databases and tables")
        name = self.name.replace("{database}", self.database).replace("{table}", table)
        shared = {key: getattr(self, key) for key in SharedTableConfig.model_fields}
        identifier = f"{self.database}.{table}"
        try:
            config = TableConfig.validate_raw(
                {**shared, "name": table_name_for(name), "catalog": self.catalog, "table": identifier}
            )
        except ValidationError as error:
            raise ConfigError(f"{identifier!r} cannot be called {name!r}: {message_of(error.errors()[0])}") from None
        return config.with_database(self.key)


class MetastoreConfig(ConfigModel):
    """The whole of `metastore.yaml`.

    Texts may refer to environment variables, as `${VAR}` or `${VAR:-default}`; a configuration constructed in Python
    may hold Dagster's `EnvVar`. Fields in `references` keep references and relative paths until `resolve`; in all other
    fields references are replaced when the configuration is constructed.
    """

    references: ClassVar[frozenset[str]] = frozenset(
        {
            *("root", "storage_options", "spark", "path_mapping", "allow", "hidden_key"),
            *("emr_serverless", "catalogs", "tables", "databases"),
        }
    )

    root: str = Field(min_length=1)
    storage_options: dict[str, str] = Field(default_factory=dict, repr=False)
    """Object-store settings of `root` (`aws_endpoint`, `aws_region`, …), as obstore names them."""
    spark: dict[str, Any] = Field(default_factory=dict, repr=False)
    engine: Literal["spark", "auto", "emr-serverless"] = "spark"
    """`spark`: files of tables are always read on Spark. `auto`: a small number of small files is read without Spark.
    `emr-serverless`: each refresh by Dagster is a job of EMR Serverless."""
    emr_serverless: EmrServerlessConfig | None = None
    """Application and role of these jobs."""
    keep_versions: int = Field(default=100, ge=1)
    """Number of versions that stay readable. `metastore expire` removes what only older ones refer to."""
    catalogs: dict[str, CatalogConfig] = Field(default_factory=dict)
    """Catalogs by name. The default of `default` is an SQLite file `catalog.db` below a local `root`."""
    path_mapping: dict[str, str] = Field(default_factory=dict)
    """Moved locations of all tables. `TableConfig.path_mapping` adds to it and takes precedence."""
    allow: tuple[str, ...] = ()
    """Location prefixes that the metadata of every table may name. `TableConfig.allow` adds to it."""
    statistics: ClassReferences = ()
    """User-defined statistics of every table. `TableConfig.statistics` adds to it."""
    sensors: SensorStatus = "running"
    """Default of `SensorConfig.status` for all tables and databases."""
    hidden_key: SecretStr | None = None
    """Key for hashes of hidden values. `$METASTORE_HIDDEN_KEY` takes precedence. Default: a key stored in `root`."""
    tables: list[TableConfig] = Field(default_factory=list)
    databases: list[DatabaseConfig] = Field(default_factory=list)
    """Whole databases. In YAML their entries may also be under `tables`."""
    _folder: Path | None = PrivateAttr(None)
    _is_resolved: bool = PrivateAttr(False)

    @model_validator(mode="before")
    @classmethod
    def _separate_databases(cls, value: Any) -> Any:
        return separate_databases(dict(value)) if isinstance(value, Mapping) else value

    @field_validator("allow", mode="before")
    @classmethod
    def _prefixes(cls, value: Any) -> Any:
        return validate_prefixes(value)

    @field_validator("hidden_key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not has_reference(value.get_secret_value()):
            _check_hidden_key(value)
        return value

    @model_validator(mode="after")
    def _distinct_names(self) -> MetastoreConfig:
        # Names become Dagster op names, where `-` turns into `_`, and folders, which may ignore case.
        counts = Counter(table.name.lower().replace("-", "_") for table in self.tables)
        clashes = [t.name for t in self.tables if counts[t.name.lower().replace("-", "_")] > 1]
        if clashes:
            raise ValueError(f"tables {', '.join(map(repr, clashes))} have the same name (case and -/_ do not count)")
        return self

    @model_validator(mode="after")
    def _known_catalogs(self) -> MetastoreConfig:
        for entry in self.entries:
            catalog = entry.catalog
            if isinstance(catalog, str) and catalog not in (EMBEDDED_CATALOG, *self.catalogs):
                names = [*self.catalogs, EMBEDDED_CATALOG]
                near = close_names(catalog, names, "")
                raise ValueError(f"{entry.label} is in the catalog {catalog!r}; there are: {', '.join(names)}{near}")
        _check_embedded_catalog(self)
        return self

    @model_validator(mode="after")
    def _jobs_can_run(self) -> MetastoreConfig:
        _check_emr(self)
        return self

    def table(self, name: str) -> TableConfig:
        """Return the table of that name. Raises ConfigError if there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise ConfigError(
            f"no table named {name!r} in the configuration"
            + (
                close_names(name, [table.name for table in self.tables], "; there are: {}")
                or ("" if self.databases else ", which has no tables")
            )
        )

    @property
    def entries(self) -> tuple[TableConfig | DatabaseConfig, ...]:
        """The tables, then the databases."""
        return (*self.tables, *self.databases)

    def sensor_status(self, entry: SharedTableConfig, override: SensorStatus | None = None) -> SensorStatus:
        """Return the status of a table's or database's sensor: `override`, else its own, else `sensors`."""
        return override or entry.sensor.status or self.sensors

    @property
    def named_statistics(self) -> tuple[str, ...]:
        """The classes of user-defined statistics anywhere in the configuration, without duplicates."""
        of_entries = (name for entry in self.entries for name in entry.named_statistics)
        return tuple(dict.fromkeys([*self.statistics, *of_entries]))

    def locate(self, folder: Path | None = None) -> MetastoreConfig:
        """Return the configuration with absolute paths, and with the keys for all tables merged into each table.

        References to variables stay, so the result shows no secrets and needs no environment.

        Args:
            folder: What relative paths refer to. Default: the folder of the configuration's file, else the working
                folder.
        """
        return _locate(self, folder or self._folder or Path.cwd())

    def resolve(self, environment: Mapping[str, str] | None = None) -> MetastoreConfig:
        """Return the configuration with absolute paths and the values of variables.

        A resolved configuration is returned unchanged.

        Args:
            environment: Values of variables. Default: the environment of this process.

        Raises:
            ConfigError: A variable is not set, or its value is invalid.
        """
        if self._is_resolved:
            return self
        try:
            config = VariableResolver(os.environ if environment is None else environment).resolve(self)
            if config.hidden_key is not None:
                _check_hidden_key(config.hidden_key)
            _check_embedded_catalog(config)
            _check_emr(config)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        located = config.locate()
        located._is_resolved, located._folder = True, None
        return located

    def in_folder(self, folder: Path) -> MetastoreConfig:
        """Return the configuration with a folder that relative paths refer to."""
        copy = self.model_copy()
        copy._folder = folder
        return copy


def _check_hidden_key(value: SecretStr) -> None:
    if len(value) < HIDDEN_KEY_MIN_LENGTH:
        raise ValueError(
            f"at least {HIDDEN_KEY_MIN_LENGTH} random characters, such as those that `openssl rand -hex 32` prints"
        )


def _check_embedded_catalog(config: MetastoreConfig) -> None:
    for entry in config.entries:
        if entry.catalog == EMBEDDED_CATALOG and EMBEDDED_CATALOG not in config.catalogs and "://" in config.root:
            raise ValueError(
                f"{entry.label} is in the catalog {EMBEDDED_CATALOG!r}, which needs a root on local disk: configure a "
                "catalog under `catalogs`"
            )


def _check_emr(config: MetastoreConfig) -> None:
    problem = emr_obstacle(config)
    if problem is not None:
        raise ValueError(problem)


def _locate(config: MetastoreConfig, folder: Path) -> MetastoreConfig:
    def located_mapping(path_mapping: Mapping[str, str]) -> dict[str, str]:
        return {old: _absolute(new, folder) for old, new in path_mapping.items()}

    shared_mapping = located_mapping(config.path_mapping)
    shared_allow = [_absolute(prefix, folder) for prefix in config.allow]
    root = _absolute(config.root, folder)
    catalogs = _located_catalogs(config, root, folder)

    def located_entry(entry: SharedTableConfigT) -> SharedTableConfigT:
        catalog: str | CatalogConfig | None = getattr(entry, "catalog", None)
        return entry.model_copy(
            update={
                "catalog": catalogs[catalog] if isinstance(catalog, str) else catalog,
                "path_mapping": shared_mapping | located_mapping(entry.path_mapping),
                "allow": (*shared_allow, *(_absolute(prefix, folder) for prefix in entry.allow)),
                "statistics": tuple(dict.fromkeys((*config.statistics, *entry.statistics))),
            }
        )

    tables = [located_entry(table).model_copy(update={"uri": _absolute(table.uri, folder)}) for table in config.tables]
    databases = [located_entry(database) for database in config.databases]
    update = {"root": root, "catalogs": catalogs, "tables": tables, "databases": databases}
    return config.model_copy(update=update)


def _located_catalogs(config: MetastoreConfig, root: str, folder: Path) -> dict[str, CatalogConfig]:
    embedded = CatalogConfig.model_validate({"type": "sql", "uri": f"{_SQLITE}{root}/catalog.db"})
    catalogs = {EMBEDDED_CATALOG: embedded} | config.catalogs
    for name, catalog in catalogs.items():
        uri = catalog.properties.get("uri", "")
        update = {"name": name}
        if uri.startswith(_SQLITE) and uri != _SQLITE:
            update["uri"] = _SQLITE + _absolute(uri.removeprefix(_SQLITE), folder)
        catalogs[name] = catalog.model_copy(update=update)
    return catalogs


def _absolute(uri: str, folder: Path) -> str:
    # A location that begins with a variable may be absolute or relative.
    if "://" in uri or uri.startswith("${"):
        return uri
    return os.path.normpath(folder / Path(uri).expanduser())
