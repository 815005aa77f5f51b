"""The request and the answer of a job, as JSON."""

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
"""The key of requests and answers in Pipes messages."""
SCRIPT = "from metastore_assets.emr.job import main\n\nmain()\n"
"""The entry point of every job. Its code is in the job's environment."""

_NOT_OF_TABLES = {"checks", "sensor", "columns", "catalog", "uri"}


def package_version() -> str:
    """Return the versions of this package and of its profiles. Profiles of another version are outdated at once."""
    return f"{version('metastore-assets')}, profiles {PROFILE_VERSION}"


@dataclass(frozen=True)
class Request:
    """A request to refresh one table."""

    version: str
    """`package_version()` of the process that launched the job; the job's must be equal."""
    config: Mapping[str, Any]
    """The configuration of this table only. Secrets are references to variables of the job's environment."""
    table: str
    full: bool
    partitions: tuple[str, ...]
    """Partitions to read again: keys or patterns."""
    needs_key: bool = False
    """Whether a configured key, rather than the root's, hashes hidden values."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """By variable, the secret of AWS Secrets Manager that has its value."""
    database: str | None = None
    """The configured database that the table belongs to."""
    listed: str | None = None
    """The format that the table's catalog lists."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON fields."""
        return {**vars(self), "partitions": list(self.partitions)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Request:
        """Return the request in JSON fields. Unknown fields are ignored; `version` shows who wrote it."""
        fields = {name: own for name, own in document.items() if name in cls.__dataclass_fields__}
        return cls(**{**fields, "partitions": tuple(fields["partitions"])})

    def configured(self) -> tuple[MetastoreConfig, TableConfig]:
        """Return the configuration with this process's variables, and the table. Raise ConfigError."""
        config = MetastoreConfig.model_validate(self.config).resolve()
        table = config.table(self.table)
        if self.database is not None:
            table = table.with_database(self.database)
        return config, table.with_listing(self.listed)


@dataclass(frozen=True)
class Answer:
    """The result of a job: a version, or an error."""

    version: int | None = None
    """The newest version after a successful refresh."""
    seconds: float = 0.0
    kind: str = ""
    """The class of the error."""
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON fields."""
        return {REQUEST: vars(self)}

    @classmethod
    def of(cls, document: Any) -> Answer | None:
        """Return the answer in a Pipes message; None for another message."""
        found = document.get(REQUEST) if isinstance(document, Mapping) else None
        return cls(**found) if isinstance(found, Mapping) else None

    def error(self, where: str) -> MetastoreError:
        """Return the job's error, with `where` added to its message."""
        kind = getattr(errors, self.kind, MetastoreError)
        text = f"{self.message} ({where})"
        try:
            return kind(text) if isinstance(kind, type) and issubclass(kind, MetastoreError) else MetastoreError(text)
        except TypeError:  # Some errors take more than a message.
            return MetastoreError(text)


def job_config(config: MetastoreConfig, table: TableConfig) -> dict[str, Any]:
    """Return a configuration with one table, as `MetastoreConfig.model_validate` takes it.

    It leaves out what only Dagster and commands read: checks, sensors, other tables, and the settings of jobs.
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
