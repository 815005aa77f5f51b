"""Pydantic models of `metastore.yaml`: of the whole file, and of its catalogs, tables and databases.

The policy of a column says which of its statistics and values are stored.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, ValidationError, field_validator, model_validator

from metastore_assets.config.base import ConfigModel, as_text, validate_prefixes
from metastore_assets.config.emr import EmrServerlessConfig, emr_obstacle
from metastore_assets.config.errors import message_of
from metastore_assets.config.file import separate_databases, table_name_for
from metastore_assets.config.policy import HIDDEN_KEY_MIN_LENGTH, ClassReferences, ColumnPolicy
from metastore_assets.config.variables import VariableResolver, has_reference
from metastore_assets.digests import digest_json
from metastore_assets.errors import ConfigError, PredicateError
from metastore_assets.expressions.wildcards import matches_any_pattern
from metastore_assets.messages import close_names, is_uri, join_names
from metastore_assets.plugins import TABLE_FORMATS

if TYPE_CHECKING:
    from metastore_assets.config.root_folders import RootFolders
    from metastore_assets.storage.location import Location

EMBEDDED_CATALOG = "default"
"""Name of the Iceberg catalog that exists without being configured."""

SensorStatus: TypeAlias = Literal["running", "stopped", "absent"]
"""`running`: Dagster starts the sensor. `stopped`: a person has to start it. `absent`: the sensor is not defined."""

_SQLITE = "sqlite:///"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


class SensorConfig(ConfigModel):
    """Settings of the Dagster sensor that watches a table or a database."""

    interval: int = Field(default=30, ge=1)
    """Seconds between two evaluations."""
    status: SensorStatus | None = None
    """The sensor's status at first. Default: the key `sensors` of the configuration."""


class DagsterConfig(ConfigModel):
    """Settings of a table's partitions in Dagster."""

    partition_columns: tuple[str, ...] = ()
    """The first partition columns of the table. All its partitions with equal values in these columns are one partition
    in Dagster: `[day]` for a table by day and hour. Default: each partition of the table is one in Dagster."""


class CatalogConfig(ConfigModel):
    """A catalog: its type, and properties for pyiceberg, such as `uri`, `warehouse` and `token`."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True, defer_build=True)

    references: ClassVar[frozenset[str]] = frozenset({"name"})

    type: Literal["sql", "rest", "glue", "hive"]
    """The kind of catalog: pyiceberg's SQL catalog, an Iceberg REST catalog, AWS Glue, or a Hive metastore."""
    name: str = ""
    """The catalog's key under `catalogs`. SQL catalogs store their tables under this name."""

    @property
    def properties(self) -> dict[str, str]:
        """All keys with a value, except `type` and `name`, with their values as text, for pyiceberg."""
        return {key: str(as_text(value)) for key, value in (self.model_extra or {}).items() if value is not None}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return only the type and the name, because properties may be secrets."""
        return [("type", self.type), ("name", self.name)]


class SharedTableConfig(ConfigModel):
    """The keys that entries of `tables` and entries of `databases` have in common."""

    references: ClassVar[frozenset[str]] = frozenset(
        {"storage_options", "path_mapping", "allow", "columns", "exports", "sensor"}
    )

    storage_options: dict[str, str] = Field(default_factory=dict, repr=False)
    """Object-store settings for the table itself, as the format's library names them (`aws_region`, …)."""
    path_mapping: dict[str, str] = Field(default_factory=dict)
    """For tables whose files were moved: the current prefix of locations, by the prefix in the table's metadata. Of
    several matching prefixes the longest is replaced."""
    allow: tuple[str, ...] = ()
    """Prefixes of locations outside of the table's store to which its metadata may refer."""
    restrict_to_table_root: bool = False
    """Whether reads outside of the table's location are refused even if `allow` or `path_mapping` permits them."""
    columns: dict[str, ColumnPolicy] = Field(default_factory=dict)
    """Policies by dotted path of a column or nested field. The entry `default` applies to all columns without an
    entry, and provides the keys that other entries do not set."""
    statistics: ClassReferences = ()
    """Custom statistics of all columns of a supported type. The key `statistics` of a column replaces them."""
    checks: tuple[Any, ...] = ()
    """Checks of the table, such as `row_count: 1`. Checks of columns are in `columns`."""
    exports: dict[str, Any] | tuple[str, ...] = Field(default_factory=dict)
    """Where each published version is written for the planners of engines: settings by name of the target, or a list of
    names, such as `[iceberg]`."""
    sensor: SensorConfig = SensorConfig()
    """The Dagster sensor that watches the table, or the database."""
    dagster: DagsterConfig = DagsterConfig()
    """The partitions of the table in Dagster."""
    outputs: Literal["kinds", "table"] = "kinds"
    """The assets in Dagster, in addition to the table's source. `kinds`: one asset for the partitions and one for each
    kind of file. `table`: a single asset with the metadata of all of these."""

    @field_validator("allow", mode="before")
    @classmethod
    def _validate_allow(cls, value: Any) -> Any:
        return validate_prefixes(value)

    @model_validator(mode="after")
    def _check_policies(self) -> Self:
        for column in self.columns:
            if problem := self._policy_conflict(column):
                raise ValueError(f"columns.{column}: {problem}")
        return self

    def _policy_conflict(self, column: str) -> str | None:
        """Return a message about contradicting keys in a column's policy, with advice.

        Returns None if no keys contradict each other.
        """
        policy, configured_policy = self.effective_policy(column), self.columns[column]
        key = policy.enumerating_key
        if key and (policy.frequencies == "off" or policy.values == "hidden"):
            opposite = "frequencies: off" if policy.frequencies == "off" else "values: hidden"
            return f"`{key}: on` needs all values, and `{opposite}` stores none: remove it, or set `{key}: off`"
        if policy.values == "hidden" and configured_policy.value_filter == "on" and column != "default":
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
        if "algorithm" in configured_policy.model_fields_set and is_for_repeated and policy.frequencies != "repeated":
            return (
                f"`algorithm: {policy.algorithm}` requires `frequencies: repeated`, and the column has `frequencies: "
                f"{policy.frequencies}`: remove the algorithm, or change the frequencies"
            )
        return None

    @property
    @abstractmethod
    def label(self) -> str:
        """The text by which messages refer to the table or database, such as `table 'orders'`."""

    def effective_policy(self, column: str, aliases: Sequence[Sequence[str]] | None = None) -> ColumnPolicy:
        """Return the policy that applies to a column.

        The `checks` of the column's entry are left out.

        Each key comes from the first of these that sets it: the column's entry under `columns`, the entry `default`,
        the built-in policy. For `statistics`, the key of the table or database precedes the built-in policy. Two more
        rules apply:

        - A column is hidden if its entry, or the entry of a struct, list or map around it, has `values: hidden`.
        - `ranks: on` and `by_partition: on` need all values. With either of them, `frequencies: auto` becomes
          `frequencies: all`. With `frequencies: repeated`, `algorithm: auto` becomes `algorithm: enumeration`.

        Args:
            column: The dotted path of the column.
            aliases: All paths of the column and of each column around it, as in `Column.aliases`. None if the
                schema is unknown. For `a.b`, the paths then are `a` and `a.b`.
        """
        policy = self.columns.get("default") or _built_in_policy()
        if "statistics" not in policy.model_fields_set:
            policy = policy.model_copy(update={"statistics": self.statistics})
        configured_policy = self.columns.get(column) if column != "default" else None
        if configured_policy is not None:
            keys = configured_policy.model_fields_set - {"checks"}
            policy = policy.model_copy(update={key: getattr(configured_policy, key) for key in keys})
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
        """Return whether the entries under `columns` hide the values of one column.

        Args:
            names: The spellings of the column's path, such as `a.b` with and without backticks. If the first spelling
                has an entry that sets `values`, only this entry counts. Otherwise, the entry of any spelling can hide
                the column.
        """
        policies = {name: self.columns[name] for name in names if name != "default" and name in self.columns}
        values = {name: policy.values for name, policy in policies.items() if "values" in policy.model_fields_set}
        return values[names[0]] == "hidden" if names[0] in values else "hidden" in values.values()

    @property
    def named_statistics(self) -> tuple[str, ...]:
        """All classes of custom statistics that this entry names, without duplicates.

        A class is named as `module:Class`.
        """
        of_columns = (reference for policy in self.columns.values() for reference in policy.statistics)
        return tuple(dict.fromkeys([*self.statistics, *of_columns]))

    @property
    def hides_values(self) -> bool:
        """Whether at least one policy has `values: hidden`."""
        return any(policy.values == "hidden" for policy in self.columns.values())


SharedTableConfigT = TypeVar("SharedTableConfigT", bound=SharedTableConfig)


@lru_cache(maxsize=1)
def _built_in_policy() -> ColumnPolicy:
    """Return the policy with the defaults of all settings.

    It replaces a missing entry `default` of `columns`.
    """
    return ColumnPolicy()


class TableConfig(SharedTableConfig):
    """One table of the Metastore: either at a `uri`, or with the name `table` in a `catalog`."""

    references: ClassVar[frozenset[str]] = SharedTableConfig.references | {
        *("uri", "catalog", "identifier", "at", "options"),
    }

    name: str
    """Name of the table: a letter, then letters, digits, `_` or `-`. A table in a catalog needs none: by default it has
    its name there, with `_` for dots."""
    uri: str = Field(min_length=1)
    """Location of the table: a path, relative to the file, or a URI such as `s3://lake/sales`. A table in a catalog has
    none (in Python: `catalog://<catalog>/<table>`)."""
    catalog: str | CatalogConfig | None = None
    """Key under `catalogs` of the catalog that names the table, or `default`."""
    identifier: str | None = Field(default=None, alias="table")
    """Database and table name in the catalog, separated by dots: `db.sales`. Only with `catalog`."""
    format: str | None = None
    """`delta`, `files`, `hudi`, `iceberg`, `lance`, or a format that an installed package registers. Default: as the
    catalog lists it, or as detected from the files at `uri`."""
    at: str | None = None
    """The snapshot: a version (Delta), a branch, tag or snapshot id (Iceberg), an instant (Hudi), or a time in ISO
    8601, which selects the newest snapshot committed up to then. Default: the newest."""
    partitions: str | dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The selected partitions: by partition column, patterns (`2024-*`) of which the value must match one; or a
    condition on partition columns (`day >= current_date - 90`). Other partitions are ignored, and their folders are not
    listed."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the format: `meta_columns` of Hudi; `template`, `kind`, and those of CSV files (`header`, `delimiter`,
    …), of plain files."""
    declared: dict[str, str] = Field(default_factory=dict, alias="schema")
    """For plain files: types by column (dotted path) that replace those of the files, written as in SQL
    (`decimal(10,2)`) or in Arrow (`decimal128(10, 2)`)."""
    _hidden_key: bytes | None = PrivateAttr(None)
    _database: str | None = PrivateAttr(None)
    _catalog_format: str | None = PrivateAttr(None)
    _dropped_reason: str | None = PrivateAttr(None)
    _root_folders: RootFolders | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _derive_uri(cls, value: Any) -> Any:
        """Add `uri` to the configured keys of a table in a catalog, and `name` if it is missing.

        The keys of other tables are returned unchanged. Raises ValueError if the keys contradict each other.
        """
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
    def _validate_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("a letter, then up to 99 letters, digits, `_` or `-`")
        return value

    @field_validator("format")
    @classmethod
    def _validate_format(cls, value: str | None) -> str | None:
        if value is not None and value not in TABLE_FORMATS:
            names = ", ".join(map(repr, TABLE_FORMATS.names()))
            raise ValueError(f"must be {names}, or a format that an installed package registers")
        return value

    @field_validator("partitions", mode="before")
    @classmethod
    def _wrap_patterns(cls, value: Any) -> Any:
        """Convert the patterns of each column, which YAML may parse as numbers or dates, to a tuple of texts."""
        if not isinstance(value, Mapping):
            return value
        lists = {column: item if isinstance(item, list | tuple) else [item] for column, item in value.items()}
        return {column: tuple(map(as_text, patterns)) for column, patterns in lists.items()}

    @field_validator("partitions")
    @classmethod
    def _validate_condition(cls, value: Any) -> Any:
        """Return the value unchanged.

        Raises ValueError if it is a condition that cannot be parsed.
        """
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
        """The text by which messages refer to the table: `table 'orders'`."""
        return f"table {self.name!r}"

    @property
    def hidden_key(self) -> bytes | None:
        """The secret key for hashes of hidden values; None unless `with_hidden_key` set one."""
        return self._hidden_key

    @property
    def policies_id(self) -> str | None:
        """Digest of the policies of columns and of the selected partitions.

        A version is the published statistics at one snapshot. The profile spec of a version says what the version
        stores of each column. Two versions have equal profile specs if they have the same schema, and the same release
        made them with equal digests. The digest is None if a profile spec may depend on more: on a class of a custom
        statistic, the key of hidden values, an export target, or the date in a condition on partitions.
        """
        if self.named_statistics or self.hides_values or self.exports or isinstance(self.partitions, str):
            return None
        columns = [[name, policy.model_dump(mode="json", exclude_unset=True)] for name, policy in self.columns.items()]
        return digest_json([columns, self.partitions])

    def with_hidden_key(self, key: bytes) -> TableConfig:
        """Return a copy of the table with a secret key for hashes of hidden values."""
        copy = self.model_copy()
        copy._hidden_key = key
        return copy

    def with_root_folders(self, folders: RootFolders) -> TableConfig:
        """Return a copy of the table whose `check_location` compares locations with the given folders."""
        copy = self.model_copy()
        copy._root_folders = folders
        return copy

    def check_location(self, location: Location) -> None:
        """Raise ConfigError if the table, at this location, overlaps the folders of the root.

        See `RootFolders`. Nothing is checked for a table of a configuration that is not resolved.
        """
        if self._root_folders is not None:
            self._root_folders.check(self.name, location)

    @property
    def database(self) -> str | None:
        """The `DatabaseConfig.key` of the database that includes the table; None for an entry of `tables`."""
        return self._database

    def with_database(self, database: str) -> TableConfig:
        """Return a copy of the table with the `DatabaseConfig.key` of the database that includes it."""
        copy = self.model_copy()
        copy._database = database
        return copy

    @property
    def declared_format(self) -> str | None:
        """The format in the configuration or in the catalog's listing.

        It is None if the format must be detected from files.
        """
        return self.format or self._catalog_format

    @property
    def dropped_reason(self) -> str | None:
        """The reason why the table is no longer in its catalog; None if it still is."""
        return self._dropped_reason

    def with_listing(self, format_: str | None, dropped_reason: str | None = None) -> TableConfig:
        """Return a copy of the table with the information that its catalog lists.

        Args:
            format_: The format that the catalog names, or None.
            dropped_reason: The reason why the catalog no longer lists the table; None if it still does.
        """
        copy = self.model_copy()
        copy._catalog_format, copy._dropped_reason = format_, dropped_reason
        return copy

    def unknown_policy_columns(self, columns: set[str]) -> list[str]:
        """Return the names with a policy that are no columns of the table, in ascending order.

        The result is empty for a table of a database, whose policies need not match every table.

        Args:
            columns: The dotted paths of all columns of the table, structs, lists and maps included.
        """
        return [] if self._database else sorted(set(self.columns) - columns - {"default"})

    def dropped_columns_warning(self, dropped_columns: Collection[str]) -> str | None:
        """Return a warning if some of the dropped columns have entries under `columns`; otherwise None.

        The result is also None for a table of a database, whose entries need not match every table.

        Args:
            dropped_columns: The dotted paths of all dropped columns.
        """
        names = self.unknown_policy_columns(set(self.columns) - set(dropped_columns))
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
    """Key under `catalogs` of the catalog that has the database, or `default`."""
    database: str = Field(min_length=1)
    """Name of the database (the namespace, in Iceberg's catalogs)."""
    only: tuple[str, ...] = ()
    """Patterns (`fact_*`) for names of tables. Default: all tables."""
    exclude: tuple[str, ...] = Field(default=(), alias="except")
    """Patterns for names of tables that are excluded."""
    name: str = "{database}_{table}"
    """Template for the tables' names in the Metastore. It contains `{table}`, and may contain `{database}`."""

    @field_validator("only", "exclude", mode="before")
    @classmethod
    def _validate_patterns(cls, value: Any) -> Any:
        """Return patterns as a tuple; a single text becomes a tuple of one.

        Raises ValueError if there are none, or if one of them is empty or not a text.
        """
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
    def _validate_template(cls, value: str) -> str:
        remainder = value.replace("{table}", "", 1).replace("{database}", "", 1)
        if "{table}" not in value or set(remainder) & set("{}"):
            raise ValueError("a text with {table} in it, and {database} or not")
        return value

    @property
    def label(self) -> str:
        """The text by which messages refer to the database: `database 'sales'`."""
        return f"database {self.database!r}"

    @property
    def key(self) -> str:
        """The text that identifies the database: `<catalog>.<database>`."""
        return f"{getattr(self.catalog, 'name', self.catalog)}.{self.database}"

    def includes(self, table: str) -> bool:
        """Return whether a table matches `only` and does not match `exclude`, ignoring case.

        The key of `exclude` in YAML is `except`.
        """
        is_selected = not self.only or matches_any_pattern(table, self.only, ignore_case=True)
        return is_selected and not matches_any_pattern(table, self.exclude, ignore_case=True)

    def table(self, table: str) -> TableConfig:
        """Return the configuration of one table, even if the database's entry does not include it.

        Args:
            table: Name of the table in the database.

        Raises:
            ConfigError: The table's name has a dot, or the template `name` turns it into an invalid name.
        """
        if "." in table:
            raise ConfigError(f"the name {table!r} contains a dot, which separates databases and tables")
        name = self.name.replace("{database}", self.database).replace("{table}", table)
        identifier = f"{self.database}.{table}"
        try:
            config = TableConfig.validate_raw(
                {"name": table_name_for(name), "catalog": self.catalog, "table": identifier}
            )
        except ValidationError as error:
            raise ConfigError(f"{identifier!r} cannot be called {name!r}: {message_of(error.errors()[0])}") from None
        # Not validated again, because that would replace references to variables a second time.
        shared_keys = {key: getattr(self, key) for key in SharedTableConfig.model_fields}
        return config.model_copy(update=shared_keys).with_database(self.key)


class MetastoreConfig(ConfigModel):
    """A configuration: the content of `metastore.yaml`, or the same keys given in Python.

    Texts may refer to environment variables as `${VAR}` or `${VAR:-default}`, and in Python also as Dagster's
    `EnvVar`. In most fields, they are replaced by values when the configuration is created. In fields that may contain
    secrets or locations, `resolve` replaces them.
    """

    references: ClassVar[frozenset[str]] = frozenset(
        {
            *("root", "storage_options", "spark", "path_mapping", "allow", "hidden_key"),
            *("emr_serverless", "catalogs", "tables", "databases"),
        }
    )

    root: str = Field(min_length=1)
    """Where the statistics are stored: a path, relative to the file, or a URI such as `s3://bucket/metastore`. The
    folder `<root>/<name of a table>` must not contain a table. A root in the folder of a table needs a folder in
    between, or a last part, that begins with `_` or `.`, such as `lake/_metastore`: readers of the table ignore it."""
    storage_options: dict[str, str] = Field(default_factory=dict, repr=False)
    """Object-store settings of `root` (`aws_endpoint`, `aws_region`, …), as obstore names them."""
    spark: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Settings of the Spark session, such as `spark.master`."""
    engine: Literal["spark", "auto", "emr-serverless"] = "spark"
    """Where a refresh reads the files of tables. `spark`: always on Spark. `auto`: a few small files without Spark, all
    others on Spark. `emr-serverless`: each refresh by Dagster is a job of EMR Serverless."""
    emr_serverless: EmrServerlessConfig | None = None
    """Settings of the jobs of EMR Serverless, which `engine: emr-serverless` requires."""
    keep_versions: int = Field(default=100, ge=1)
    """Number of newest versions of each table that stay readable. `metastore expire` removes the files that only older
    versions use."""
    catalogs: dict[str, CatalogConfig] = Field(default_factory=dict)
    """Catalogs by name. Without an entry, the catalog `default` is the SQLite file `catalog.db` in a local `root`."""
    path_mapping: dict[str, str] = Field(default_factory=dict)
    """The key `path_mapping` of all tables. The entries of a table take precedence."""
    allow: tuple[str, ...] = ()
    """The key `allow` of all tables. The prefixes of a table are added."""
    statistics: ClassReferences = ()
    """The key `statistics` of all tables. The statistics of a table are added."""
    sensors: SensorStatus = "running"
    """Whether the sensors of all tables and databases run at first: the default of their `sensor.status`."""
    hidden_key: SecretStr | None = None
    """Key for hashes of hidden values. `$METASTORE_HIDDEN_KEY` takes precedence. Default: a key stored in `root`."""
    tables: list[TableConfig] = Field(default_factory=list)
    """The tables, by location or by name in a catalog."""
    databases: list[DatabaseConfig] = Field(default_factory=list)
    """Databases whose tables are all included. In YAML, entries with a key `database` may also be under `tables`."""
    _folder: Path | None = PrivateAttr(None)
    _is_resolved: bool = PrivateAttr(False)

    @model_validator(mode="before")
    @classmethod
    def _separate_databases(cls, value: Any) -> Any:
        return separate_databases(dict(value)) if isinstance(value, Mapping) else value

    @field_validator("allow", mode="before")
    @classmethod
    def _validate_allow(cls, value: Any) -> Any:
        return validate_prefixes(value)

    @field_validator("hidden_key")
    @classmethod
    def _validate_hidden_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not has_reference(value.get_secret_value()):
            _check_hidden_key(value)
        return value

    @model_validator(mode="after")
    def _check_names(self) -> MetastoreConfig:
        """Raise ValueError if two tables have the same name, ignoring case and the difference of `-` and `_`."""
        # Names become Dagster op names, where `-` turns into `_`, and folders, which may ignore case.
        counts = Counter(fold_name(table.name) for table in self.tables)
        clashes = [table.name for table in self.tables if counts[fold_name(table.name)] > 1]
        if clashes:
            raise ValueError(f"tables {', '.join(map(repr, clashes))} have the same name (case and -/_ do not count)")
        return self

    @model_validator(mode="after")
    def _check_catalogs(self) -> MetastoreConfig:
        """Raise ValueError if an entry names an unknown catalog.

        The catalog `default` needs no entry in `catalogs` if the root is on local disk.
        """
        for entry in self.entries:
            catalog = entry.catalog
            if isinstance(catalog, str) and catalog not in (EMBEDDED_CATALOG, *self.catalogs):
                names = [*self.catalogs, EMBEDDED_CATALOG]
                near = close_names(catalog, names, "")
                raise ValueError(f"{entry.label} is in the catalog {catalog!r}; there are: {', '.join(names)}{near}")
        _check_embedded_catalog(self)
        return self

    @model_validator(mode="after")
    def _check_engine(self) -> MetastoreConfig:
        _check_emr(self)
        return self

    def table(self, name: str) -> TableConfig:
        """Return the entry of `tables` with a name.

        Raises ConfigError if there is none.

        Tables of databases are entries of `tables` only after their databases were listed.
        """
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
        """Return the initial status of the sensor of a table or database.

        It is `override`, if given, otherwise the entry's `sensor.status`. If that is not set, it is the key `sensors`
        of this configuration.

        Args:
            entry: The table or database.
            override: The status to return instead of the configured one; None for the configured one.
        """
        return override or entry.sensor.status or self.sensors

    @property
    def named_statistics(self) -> tuple[str, ...]:
        """The distinct classes of custom statistics that the configuration names, as `module:Class`."""
        of_entries = (name for entry in self.entries for name in entry.named_statistics)
        return tuple(dict.fromkeys([*self.statistics, *of_entries]))

    def locate(self, folder: Path | None = None) -> MetastoreConfig:
        """Return a copy with absolute paths, in which settings for all tables are merged into each table.

        References to variables are not replaced, so no variable has to be set.

        Args:
            folder: The folder to which relative paths refer. Default: the folder of the configuration's file; without
                a file, the working folder.
        """
        return _locate(self, folder or self._folder or Path.cwd())

    def resolve(self, environment: Mapping[str, str] | None = None) -> MetastoreConfig:
        """Return a copy with absolute paths and with the values of variables.

        As by `locate`, settings for all tables are merged into each table. A configuration that is already resolved is
        returned unchanged.

        Args:
            environment: Values of variables. Default: the environment of this process.

        Raises:
            ConfigError: A variable is not set, or its value is invalid. Or a table overlaps the root (see
                `RootFolders`).
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
        located_config = _with_root_folders(config.locate())
        located_config._is_resolved, located_config._folder = True, None
        return located_config

    def root_folders(self, names: Iterable[str]) -> RootFolders:
        """Return the folders of the root for tables with these names."""
        from metastore_assets.config.root_folders import RootFolders  # imports pyarrow, which models do not need
        from metastore_assets.storage.location import Location

        return RootFolders(Location.of(self.root, self.storage_options), frozenset(names))

    def in_folder(self, folder: Path) -> MetastoreConfig:
        """Return a copy whose relative paths start at `folder`: `data` stands for `folder/data`."""
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
        if entry.catalog == EMBEDDED_CATALOG and EMBEDDED_CATALOG not in config.catalogs and is_uri(config.root):
            raise ValueError(
                f"{entry.label} is in the catalog {EMBEDDED_CATALOG!r}, which needs a root on local disk: configure a "
                "catalog under `catalogs`"
            )


def _with_root_folders(config: MetastoreConfig) -> MetastoreConfig:
    """Return a copy whose tables know the folders of the root, which their locations must not overlap.

    Locations in the configuration are checked here. Those in catalogs are checked when a table is opened.

    Args:
        config: The configuration, with absolute locations and without variables.

    Raises:
        ConfigError: A table with a known location overlaps the root.
    """
    from metastore_assets.storage.location_policy import table_location

    folders = config.root_folders(table.name for table in config.tables)
    for table in config.tables:
        if table.catalog is None:
            folders.check(table.name, table_location(table))
    return config.model_copy(update={"tables": [table.with_root_folders(folders) for table in config.tables]})


def _check_emr(config: MetastoreConfig) -> None:
    problem = emr_obstacle(config)
    if problem is not None:
        raise ValueError(problem)


def _locate(config: MetastoreConfig, folder: Path) -> MetastoreConfig:
    """Return a copy with absolute paths, in which settings for all tables are merged into each table."""

    def located_mapping(path_mapping: Mapping[str, str]) -> dict[str, str]:
        return {old: _absolute(new, folder) for old, new in path_mapping.items()}

    shared_mapping = located_mapping(config.path_mapping)
    shared_allow = [_absolute(prefix, folder) for prefix in config.allow]
    root = _absolute(config.root, folder)
    catalogs = _located_catalogs(config, root, folder)

    def located_entry(entry: SharedTableConfigT) -> SharedTableConfigT:
        """Return a copy of a table or database entry that also has the settings for all tables.

        These settings are `path_mapping`, `allow` and `statistics` at the top of the configuration. Local paths in
        `path_mapping` and `allow` become absolute. The name of the entry's catalog is replaced by that catalog's
        settings.
        """
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
    """Return all catalogs by name, including `default`.

    Paths of SQLite files are absolute.
    """
    embedded_catalog = CatalogConfig.model_validate({"type": "sql", "uri": f"{_SQLITE}{root}/catalog.db"})
    catalogs = {EMBEDDED_CATALOG: embedded_catalog} | config.catalogs
    for name, catalog in catalogs.items():
        uri = catalog.properties.get("uri", "")
        update = {"name": name}
        if uri.startswith(_SQLITE) and uri != _SQLITE:
            update["uri"] = _SQLITE + _absolute(uri.removeprefix(_SQLITE), folder)
        catalogs[name] = catalog.model_copy(update=update)
    return catalogs


def fold_name(name: str) -> str:
    """Return the form in which the names of any two tables must differ.

    `my-orders` and `My_Orders` have the same form.
    """
    return name.lower().replace("-", "_")


def _absolute(uri: str, folder: Path) -> str:
    """Make a local path absolute.

    URIs and texts that begin with a variable are returned unchanged.
    """
    # The value of the variable may be an absolute path or a URI.
    if is_uri(uri) or uri.startswith("${"):
        return uri
    # As in a shell, `~name` of no user is an ordinary name.
    return os.path.normpath(folder / os.path.expanduser(uri))
