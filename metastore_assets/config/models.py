"""`metastore.yaml` as pydantic models: where the Metastore lives, which tables it keeps, and what of each column."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import (
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from metastore_assets.config.described import CatalogConfig as CatalogConfig
from metastore_assets.config.described import DescribedConfig, listed
from metastore_assets.config.described import SensorConfig as SensorConfig
from metastore_assets.config.described import SensorStatus as SensorStatus
from metastore_assets.config.emr import EmrServerlessConfig as EmrServerlessConfig
from metastore_assets.config.emr import problem as problem_on_emr
from metastore_assets.config.errors import explain
from metastore_assets.config.loading import CONFIG_VARIABLE as CONFIG_VARIABLE
from metastore_assets.config.loading import config_path as config_path
from metastore_assets.config.loading import databases_apart, read_mapping
from metastore_assets.config.policy import FREQUENCY_LIMIT as FREQUENCY_LIMIT
from metastore_assets.config.policy import LEAST_KEY as LEAST_KEY
from metastore_assets.config.policy import NEAR_UNIQUE_FROM as NEAR_UNIQUE_FROM
from metastore_assets.config.policy import CardinalityMode as CardinalityMode
from metastore_assets.config.policy import ColumnPolicy as ColumnPolicy
from metastore_assets.config.policy import ConfigModel
from metastore_assets.config.policy import References as References
from metastore_assets.config.policy import ResolvedPolicy as ResolvedPolicy
from metastore_assets.config.tables import DatabaseConfig as DatabaseConfig
from metastore_assets.config.tables import TableConfig as TableConfig
from metastore_assets.config.variables import Variables, has_reference
from metastore_assets.errors import ConfigError
from metastore_assets.messages import close_names

EMBEDDED_CATALOG = "default"
"""The catalog, of Iceberg tables, that there is without being configured."""

_SQLITE = "sqlite:///"

Described = TypeVar("Described", bound=DescribedConfig)


class MetastoreConfig(ConfigModel):
    """The whole of `metastore.yaml`.

    Texts in it may refer to variables of the environment, as `${VAR}` or `${VAR:-default}`; one that is made in Python
    may hold Dagster's `EnvVar`. In the fields that `references` names they stay as written until `resolved`, as do
    relative paths; elsewhere they are replaced when the configuration is made.
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
    """`spark` reads the files of tables on Spark, always; `auto` reads few small ones without; `emr-serverless` makes
    each refresh that Dagster runs a job of EMR Serverless."""
    emr_serverless: EmrServerlessConfig | None = None
    """Where and as whom these jobs run."""
    keep_versions: int = Field(default=100, ge=1)
    """Versions kept readable; what only older ones name is removed by `metastore expire`."""
    catalogs: dict[str, CatalogConfig] = Field(default_factory=dict)
    """Catalogs by name. `default`, unless it is given, is an SQLite file `catalog.db` below a local `root`."""
    path_mapping: dict[str, str] = Field(default_factory=dict)
    """Locations that moved, for every table; see `TableConfig.path_mapping`, which adds to it and wins."""
    allow: tuple[str, ...] = ()
    """Prefixes that the metadata of every table may name; see `TableConfig.allow`, which adds to it."""
    statistics: References = ()
    """User-defined statistics of every table; see `TableConfig.statistics`, which adds to it."""
    sensors: SensorStatus = "running"
    """Whether Dagster has sensors of the tables and databases, and starts them by itself; see `SensorConfig.status`."""
    hidden_key: SecretStr | None = None
    """What hidden values are hashed with, unless `$METASTORE_HIDDEN_KEY` is set; else a key is kept in `root`."""
    tables: list[TableConfig] = Field(default_factory=list)
    databases: list[DatabaseConfig] = Field(default_factory=list)
    """Whole databases, which may also stand under `tables`. Which tables they have, their catalogs say."""
    _folder: Path | None = PrivateAttr(None)
    _is_resolved: bool = PrivateAttr(False)

    @model_validator(mode="before")
    @classmethod
    def _databases_apart(cls, value: Any) -> Any:
        return databases_apart(dict(value)) if isinstance(value, Mapping) else value

    @field_validator("allow", mode="before")
    @classmethod
    def _prefixes(cls, value: Any) -> Any:
        return listed(value)

    @field_validator("hidden_key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not has_reference(value.get_secret_value()):
            _check_key(value)
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
        for what, catalog in _in_catalogs(self):
            if isinstance(catalog, str) and catalog not in (EMBEDDED_CATALOG, *self.catalogs):
                there = [*self.catalogs, EMBEDDED_CATALOG]
                near = close_names(catalog, there, "")
                raise ValueError(f"{what} is in the catalog {catalog!r}; there are: {', '.join(there)}{near}")
        _check_embedded(self)
        return self

    @model_validator(mode="after")
    def _jobs_can_run(self) -> MetastoreConfig:
        _check_jobs(self)
        return self

    def table(self, name: str) -> TableConfig:
        """The table of that name; ConfigError when there is none."""
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

    def sensor_status(self, one: DescribedConfig, chosen: SensorStatus | None = None) -> SensorStatus:
        """Return the status of a table's or a database's sensor: `chosen`, else what it says itself, else `sensors`."""
        return chosen or one.sensor.status or self.sensors

    @property
    def named_statistics(self) -> tuple[str, ...]:
        """The classes of user-defined statistics that are named anywhere in it."""
        described = (own for one in (*self.tables, *self.databases) for own in one.named_statistics)
        return tuple(dict.fromkeys([*self.statistics, *described]))

    def located(self) -> MetastoreConfig:
        """The configuration with relative paths made absolute, and what is said of all tables said of each.

        They are relative to the file that the configuration was read from, or else to the current folder. References
        to variables stay: so it may be shown to anybody, and is there where the variables are not.
        """
        return _located(self, self._folder or Path.cwd())

    def resolved(self, environment: Mapping[str, str] | None = None) -> MetastoreConfig:
        """The configuration as it counts: located, and with the variables' values, of this process if need be.

        What is resolved stays as it is. Raises ConfigError where a variable is not set.
        """
        if self._is_resolved:
            return self
        try:
            config = Variables(os.environ if environment is None else environment).resolved(self)
            if config.hidden_key is not None:
                _check_key(config.hidden_key)
            _check_embedded(config)
            _check_jobs(config)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        located = config.located()
        located._is_resolved, located._folder = True, None
        return located


def read_config(explicit: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """Read and validate the configuration, as it is written. Raises ConfigError."""
    path = config_path(explicit)
    raw = read_mapping(path)
    try:
        config = MetastoreConfig.validate_raw(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(raw, error, MetastoreConfig)}") from None
    config._folder = path.parent
    return config


def load_config(explicit: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """The configuration of a file, resolved; relative paths in it are relative to the file. Raises ConfigError."""
    path = config_path(explicit)
    config = read_config(path)
    try:
        return config.resolved()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _check_key(value: SecretStr) -> None:
    if len(value) < LEAST_KEY:
        raise ValueError(f"at least {LEAST_KEY} characters, drawn at random, such as `openssl rand -hex 32` prints")


def _check_embedded(config: MetastoreConfig) -> None:
    for what, catalog in _in_catalogs(config):
        if catalog == EMBEDDED_CATALOG and EMBEDDED_CATALOG not in config.catalogs and "://" in config.root:
            raise ValueError(
                f"{what} is in the catalog {EMBEDDED_CATALOG!r}, which a root in an object store "
                "has not: name one under catalogs"
            )


def _check_jobs(config: MetastoreConfig) -> None:
    found = problem_on_emr(config)
    if found is not None:
        raise ValueError(found)


def _in_catalogs(config: MetastoreConfig) -> list[tuple[str, str | CatalogConfig | None]]:
    """What is in catalogs, as messages call it, and in which."""
    tables = [(f"table {table.name!r}", table.catalog) for table in config.tables]
    return [*tables, *((f"database {one.database!r}", one.catalog) for one in config.databases)]


def _located(config: MetastoreConfig, folder: Path) -> MetastoreConfig:
    def resolved(path_mapping: Mapping[str, str]) -> dict[str, str]:
        return {old: _absolute(new, folder) for old, new in path_mapping.items()}

    everywhere = resolved(config.path_mapping)
    allowed = [_absolute(prefix, folder) for prefix in config.allow]
    root = _absolute(config.root, folder)
    catalogs = _catalogs(config, root, folder)

    def described(one: Described) -> Described:
        catalog: str | CatalogConfig | None = getattr(one, "catalog", None)
        return one.model_copy(
            update={
                "catalog": catalogs[catalog] if isinstance(catalog, str) else catalog,
                "path_mapping": everywhere | resolved(one.path_mapping),
                "allow": (*allowed, *(_absolute(prefix, folder) for prefix in one.allow)),
                "statistics": tuple(dict.fromkeys((*config.statistics, *one.statistics))),
            }
        )

    tables = [described(table).model_copy(update={"uri": _absolute(table.uri, folder)}) for table in config.tables]
    databases = [described(database) for database in config.databases]
    update = {"root": root, "catalogs": catalogs, "tables": tables, "databases": databases}
    return config.model_copy(update=update)


def _catalogs(config: MetastoreConfig, root: str, folder: Path) -> dict[str, CatalogConfig]:
    embedded = CatalogConfig.model_validate({"type": "sql", "uri": f"{_SQLITE}{root}/catalog.db"})
    catalogs = {EMBEDDED_CATALOG: embedded} | config.catalogs
    for name, catalog in catalogs.items():
        database = catalog.properties.get("uri", "")
        update = {"name": name}
        if database.startswith(_SQLITE) and database != _SQLITE:
            update["uri"] = _SQLITE + _absolute(database.removeprefix(_SQLITE), folder)
        catalogs[name] = catalog.model_copy(update=update)
    return catalogs


def _absolute(uri: str, folder: Path) -> str:
    # What begins with a variable may be absolute or not.
    if "://" in uri or uri.startswith("${"):
        return uri
    return os.path.normpath(folder / Path(uri).expanduser())
