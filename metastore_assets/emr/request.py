"""What a job is told, and what it answers, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from pydantic import SecretStr

from metastore_assets import errors
from metastore_assets.config import EMBEDDED_CATALOG, CatalogConfig, MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.pipeline.column_spec import PROFILE_VERSION

REQUEST = "metastore"
"""The name under which Pipes brings a request to the job."""
SCRIPT = "from metastore_assets.emr.job import main\n\nmain()\n"
"""The entry point of every job. What it does is in the environment that the job runs in."""

_NOT_OF_TABLES = {"checks", "sensor", "columns", "catalog", "uri"}


def package_version() -> str:
    """Of this package and of the profiles that it makes: what another publishes would be out of date at once."""
    return f"{version('metastore-assets')}, profiles {PROFILE_VERSION}"


@dataclass(frozen=True)
class Request:
    """Refresh one table."""

    version: str
    """`package_version()` where the job was launched: in the job it has to be the same."""
    config: Mapping[str, Any]
    """The configuration, of this table alone; secrets are references to variables of the job's environment."""
    table: str
    full: bool
    partitions: tuple[str, ...]
    """To read again: keys or patterns."""
    needs_key: bool = False
    """Whether hidden values are hashed with a key that is configured, and not with that in the root."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """By variable, the secret of AWS Secrets Manager that is its value."""
    database: str | None = None
    """Which whole database the table is one of."""
    listed: str | None = None
    """The format that the table's catalog lists it with."""

    def to_json(self) -> dict[str, Any]:
        """What `of` takes."""
        return {**vars(self), "partitions": list(self.partitions)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Request:
        """That of a JSON document, of which keys that nobody knows are left out: the version tells who wrote it."""
        fields = {name: own for name, own in document.items() if name in cls.__dataclass_fields__}
        return cls(**{**fields, "partitions": tuple(fields["partitions"])})

    def configured(self) -> tuple[MetastoreConfig, TableConfig]:
        """The configuration with the variables of this process, and the table. Raises ConfigError."""
        config = MetastoreConfig.model_validate(self.config).resolve()
        table = config.table(self.table)
        if self.database is not None:
            table = table.with_database(self.database)
        return config, table.with_listing(self.listed)


@dataclass(frozen=True)
class Answer:
    """How a job ended."""

    version: int | None = None
    """The newest version, when all went well."""
    seconds: float = 0.0
    kind: str = ""
    """The class of an error."""
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """What `of` takes."""
        return {REQUEST: vars(self)}

    @classmethod
    def of(cls, document: Any) -> Answer | None:
        """That of a message of Pipes; None where it is another message."""
        found = document.get(REQUEST) if isinstance(document, Mapping) else None
        return cls(**found) if isinstance(found, Mapping) else None

    def error(self, where: str) -> MetastoreError:
        """The error that it tells of, with where that was."""
        kind = getattr(errors, self.kind, MetastoreError)
        text = f"{self.message} ({where})"
        try:
            return kind(text) if isinstance(kind, type) and issubclass(kind, MetastoreError) else MetastoreError(text)
        except TypeError:  # one that takes more than a message
            return MetastoreError(text)


def job_config(config: MetastoreConfig, table: TableConfig) -> dict[str, Any]:
    """What `MetastoreConfig.model_validate` takes, of a located configuration and one of its tables.

    What only Dagster and commands ask for is left out: checks, sensors, other tables, and how jobs are launched.
    """
    name = table.catalog.name if isinstance(table.catalog, CatalogConfig) else table.catalog
    own = table.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=_NOT_OF_TABLES)
    own["columns"] = {
        column: policy.model_dump(mode="json", exclude_unset=True, exclude={"checks"})
        for column, policy in table.columns.items()
    }
    own |= {"catalog": name} if name is not None else {"uri": table.uri}
    own |= {key: list(value) for key, value in (("allow", table.allow), ("statistics", table.statistics))}
    document: dict[str, Any] = {
        "root": config.root,
        "storage_options": dict(config.storage_options),
        "engine": config.emr_serverless.engine if config.emr_serverless else "spark",
        "keep_versions": config.keep_versions,
        "tables": [own],
    }
    if name is not None and (name != EMBEDDED_CATALOG or name in config.catalogs):
        catalog = config.catalogs[name]
        document["catalogs"] = {name: {"type": catalog.type, **catalog.properties}}
    if isinstance(config.hidden_key, SecretStr):
        document["hidden_key"] = config.hidden_key.get_secret_value()
    return document
