"""`metastore.yaml` as pydantic models: where the Metastore lives, which tables it keeps, and what of each column."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from metastore_assets.config_errors import explain
from metastore_assets.config_file import CONFIG_VARIABLE as CONFIG_VARIABLE
from metastore_assets.config_file import config_path as config_path
from metastore_assets.config_file import read_mapping
from metastore_assets.config_policy import FREQUENCY_LIMIT as FREQUENCY_LIMIT
from metastore_assets.config_policy import LEAST_KEY as LEAST_KEY
from metastore_assets.config_policy import NEAR_UNIQUE_FROM as NEAR_UNIQUE_FROM
from metastore_assets.config_policy import ColumnPolicy as ColumnPolicy
from metastore_assets.config_policy import ConfigModel
from metastore_assets.config_policy import KeptPolicy as KeptPolicy
from metastore_assets.config_policy import References as References
from metastore_assets.errors import ConfigError
from metastore_assets.messages import close_names

EMBEDDED_CATALOG = "default"
"""The Iceberg catalog that there is without being configured."""

_SQLITE = "sqlite:///"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


class SensorConfig(ConfigModel):
    """How often the table's commit sensor looks, in seconds."""

    interval: int = Field(default=30, ge=1)


class CatalogConfig(ConfigModel):
    """An Iceberg catalog: its kind, and whatever properties pyiceberg takes for it (`uri`, `warehouse`, `token`, …)."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Literal["sql", "rest", "glue", "hive"]
    name: str = ""
    """Its key under `catalogs`, which catalogs in SQL databases have their tables under."""

    @property
    def properties(self) -> dict[str, str]:
        """All keys but the kind and the name, as pyiceberg takes them."""
        return {key: str(_text(value)) for key, value in (self.model_extra or {}).items()}


class TableConfig(ConfigModel):
    """One table to keep statistics of: at a `uri`, or under its `identifier` in a `catalog`."""

    name: str
    uri: str = Field(min_length=1)
    """`catalog://<catalog>/<identifier>` for a table in a catalog."""
    catalog: str | CatalogConfig | None = None
    """A name under `catalogs` (or `default`); its settings once the configuration is loaded."""
    identifier: str | None = None
    """Namespace and name in the catalog, with dots between: `db.sales`."""
    format: Literal["delta", "files", "iceberg", "hudi"] | None = None
    """Detected from what lies at `uri` when absent."""
    storage_options: dict[str, str] = Field(default_factory=dict)
    """Object-store settings for the table itself, as the format's library names them (`aws_region`, …)."""
    at: str | None = None
    """The state that is meant: a version (Delta), a branch, tag or snapshot id (Iceberg), an instant (Hudi), or a time
    in ISO 8601, for the newest state committed up to then. Absent: the newest."""
    partitions: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By partition column, patterns (`2024-*`) of which a value must fit one: other partitions are left out."""
    relocate: dict[str, str] = Field(default_factory=dict)
    """Of a moved table: recorded location prefixes and where the files lie now. The longest one that fits counts."""
    allow: tuple[str, ...] = ()
    """Prefixes of locations outside of the table's own store that its metadata may name."""
    confine: bool = False
    """Whether only what is below the table's own location is read, whatever `allow` and `relocate` say."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Reader options of the format. Files: `template` (`{year:int}/{month}`); of CSV files also `header`, `delimiter`,
    `quote`, `escape`, `escape_unquoted`, `encoding`, `null_values`, `skip_initial_space`, `skip_blank_lines`."""
    declared: dict[str, str] = Field(default_factory=dict, alias="schema")
    """Of plain files: types by column (dotted path) that count instead of those that the files say or are found to fit,
    as SQL (`decimal(10,2)`) or statistics (`decimal128(10, 2)`) name them."""
    columns: dict[str, ColumnPolicy] = Field(default_factory=dict)
    """Policy by column (dotted leaf path). The key `default` is the policy of every column not named."""
    statistics: References = ()
    """User-defined statistics of all columns of the types that they are for, where `columns` says nothing else."""
    sensor: SensorConfig = SensorConfig()
    _hidden_key: bytes | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _one_place(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or (value.get("catalog") is None and value.get("identifier") is None):
            return value
        if value.get("catalog") is None or value.get("identifier") is None:
            raise ValueError("catalog and identifier go together: the one says where the other is a table")
        name = getattr(value["catalog"], "name", value["catalog"])
        uri = f"catalog://{name}/{value['identifier']}"
        if value.get("uri") not in (None, uri):
            raise ValueError("a table has either a uri, or a catalog and an identifier")
        if value.get("format") not in (None, "iceberg"):
            raise ValueError(f"tables in catalogs are Iceberg tables, not {value['format']}")
        return {**value, "uri": uri, "format": "iceberg"}

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

    @field_validator("allow", mode="before")
    @classmethod
    def _prefixes(cls, value: Any) -> Any:
        return _listed(value)

    @field_validator("at", mode="before")
    @classmethod
    def _at_as_text(cls, value: Any) -> Any:
        return value if value is None else _text(value)

    @model_validator(mode="after")
    def _lists_have_values(self) -> TableConfig:
        for column in self.columns:
            policy = self.policy(column)
            if policy.needs_lists and (policy.frequencies == "off" or policy.values == "hidden"):
                against = "frequencies: off" if policy.frequencies == "off" else "values: hidden"
                key = policy.needs_lists
                raise ValueError(
                    f"columns.{column}: `{key}: on` takes a list of all values, and `{against}` keeps none: "
                    f"leave that out, or give the column `{key}: off`"
                )
        return self

    def policy(self, column: str) -> ColumnPolicy:
        """The policy of the column with this dotted leaf path: its own keys over `default`'s over the built-in ones.

        Values inside a struct, list or map are hidden where its own are.
        """
        policy = self.columns.get("default", ColumnPolicy())
        if "statistics" not in policy.model_fields_set:
            policy = policy.model_copy(update={"statistics": self.statistics})
        own = self.columns.get(column) if column != "default" else None
        if own is not None:
            policy = policy.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})
        # What is inside a column is as hidden as the column.
        if any(each.values == "hidden" and column.startswith(f"{name}.") for name, each in self.columns.items()):
            policy = policy.model_copy(update={"values": "hidden"})
        # Every list of all values gives ranks; by partition it is kept beside it.
        if policy.needs_lists and policy.frequencies == "auto":
            policy = policy.model_copy(update={"frequencies": "all"})
        return policy

    @property
    def hides_values(self) -> bool:
        """Whether a policy hides values of some column."""
        return any(policy.values == "hidden" for policy in self.columns.values())

    @property
    def hidden_key(self) -> bytes | None:
        """The key that columns' keys for hidden values are made from, where it is known."""
        return self._hidden_key

    def keyed(self, key: bytes) -> TableConfig:
        """The same table with that key."""
        copy = self.model_copy()
        copy._hidden_key = key
        return copy

    def policies_of_unknown_columns(self, known: set[str]) -> list[str]:
        """Names under `columns` that are no column of the table: a typing error that would else be ignored."""
        return sorted(set(self.columns) - known - {"default"})


class MetastoreConfig(ConfigModel):
    """The whole of `metastore.yaml`."""

    root: str = Field(min_length=1)
    storage_options: dict[str, str] = Field(default_factory=dict)
    """Object-store settings of `root` (`aws_endpoint`, `aws_region`, …), as obstore names them."""
    spark: dict[str, Any] = Field(default_factory=dict)
    engine: Literal["spark", "auto"] = "spark"
    """`spark` reads the files of tables on Spark, always; `auto` reads few small ones without."""
    keep_versions: int = Field(default=100, ge=1)
    """Versions kept readable; what only older ones name is removed by `metastore expire`."""
    catalogs: dict[str, CatalogConfig] = Field(default_factory=dict)
    """Iceberg catalogs by name. `default`, unless it is given, is an SQLite file `catalog.db` below a local `root`."""
    relocate: dict[str, str] = Field(default_factory=dict)
    """Locations that moved, for every table; see `TableConfig.relocate`, which adds to it and wins."""
    allow: tuple[str, ...] = ()
    """Prefixes that the metadata of every table may name; see `TableConfig.allow`, which adds to it."""
    statistics: References = ()
    """User-defined statistics of every table; see `TableConfig.statistics`, which adds to it."""
    hidden_key: SecretStr | None = None
    """What hidden values are hashed with, unless `$METASTORE_HIDDEN_KEY` is set; else a key is kept in `root`."""
    tables: list[TableConfig] = Field(default_factory=list)

    @field_validator("allow", mode="before")
    @classmethod
    def _prefixes(cls, value: Any) -> Any:
        return _listed(value)

    @field_validator("hidden_key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value) < LEAST_KEY:
            raise ValueError(f"at least {LEAST_KEY} characters, drawn at random, such as `openssl rand -hex 32` prints")
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
        for table in self.tables:
            if isinstance(table.catalog, str) and table.catalog not in (EMBEDDED_CATALOG, *self.catalogs):
                there = ", ".join([*self.catalogs, EMBEDDED_CATALOG])
                raise ValueError(f"table {table.name!r} is in the catalog {table.catalog!r}; there are: {there}")
            if table.catalog == EMBEDDED_CATALOG and EMBEDDED_CATALOG not in self.catalogs and "://" in self.root:
                raise ValueError(
                    f"table {table.name!r} is in the catalog {EMBEDDED_CATALOG!r}, which a root in an object store "
                    "has not: name one under catalogs"
                )
        return self

    def table(self, name: str) -> TableConfig:
        """The table of that name; ConfigError when there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise ConfigError(
            f"no table named {name!r} in the configuration"
            + (close_names(name, [table.name for table in self.tables], "; there are: {}") or ", which has no tables")
        )


def _listed(value: Any) -> Any:
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


def load_config(explicit: str | os.PathLike[str] | None = None) -> MetastoreConfig:
    """Read and validate the configuration. Relative paths in it are relative to the file. Raises ConfigError."""
    path = config_path(explicit)
    raw = read_mapping(path)
    try:
        config = MetastoreConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(raw, error, MetastoreConfig)}") from None
    return _resolve(config, path.parent)


def _resolve(config: MetastoreConfig, folder: Path) -> MetastoreConfig:
    def resolved(relocate: Mapping[str, str]) -> dict[str, str]:
        return {old: _absolute(new, folder) for old, new in relocate.items()}

    everywhere = resolved(config.relocate)
    allowed = [_absolute(prefix, folder) for prefix in config.allow]
    root = _absolute(config.root, folder)
    catalogs = _catalogs(config, root, folder)
    tables = [
        table.model_copy(
            update={
                "uri": _absolute(table.uri, folder),
                "catalog": catalogs[table.catalog] if isinstance(table.catalog, str) else table.catalog,
                "relocate": everywhere | resolved(table.relocate),
                "allow": (*allowed, *(_absolute(prefix, folder) for prefix in table.allow)),
                "statistics": tuple(dict.fromkeys((*config.statistics, *table.statistics))),
            }
        )
        for table in config.tables
    ]
    return config.model_copy(update={"root": root, "catalogs": catalogs, "tables": tables})


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
    if "://" in uri:
        return uri
    return os.path.normpath(folder / Path(uri).expanduser())
