"""The request and the answer of an EMR Serverless job.

Both are exchanged as JSON.
"""

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
"""The key under which Dagster Pipes transports the request and the answer."""
SCRIPT = "from metastore_assets.emr.job import main\n\nmain()\n"
"""The program of every job. The package is in the job's environment."""

_SEPARATE_FIELDS = {"checks", "sensor", "columns", "catalog", "uri"}


def package_version() -> str:
    """Return the version of this package, and of the format of the statistics (profiles) that it writes.

    Example: `0.1.0, profiles 12`.
    """
    return f"{version('metastore-assets')}, profiles {PROFILE_VERSION}"


@dataclass(frozen=True)
class JobRequest:
    """A request to refresh one table."""

    version: str
    """The `package_version()` of the process that launched the job. The job refuses a request of another version."""
    config: Mapping[str, Any]
    """The configuration with only this table. Secrets are references to variables of the job's environment."""
    table: str
    full: bool
    partitions: tuple[str, ...]
    """The partitions to read again: keys or patterns."""
    needs_key: bool = False
    """Whether the launching process has a configured key for hashes of hidden values. The job then needs the same key.
    If false, the job uses the key in the root."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The name of each secret in AWS Secrets Manager, by environment variable."""
    database: str | None = None
    """The configured database that the table belongs to; None for a table with an entry of its own."""
    listed_format: str | None = None
    """The format of the table according to the listing of its catalog; None if unknown."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as a JSON object."""
        return {**vars(self), "partitions": list(self.partitions)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JobRequest:
        """Parse a JSON object.

        Unknown fields, perhaps of another version of the package, are ignored.
        """
        fields = {name: value for name, value in document.items() if name in cls.__dataclass_fields__}
        return cls(**{**fields, "partitions": tuple(fields["partitions"])})

    def load_config(self) -> tuple[MetastoreConfig, TableConfig]:
        """Return the configuration and the table's entry in it.

        References to environment variables, such as `${VAR}`, are replaced by their values in this process.

        Raises ConfigError if a variable is not set or a value is invalid.
        """
        config = MetastoreConfig.model_validate(self.config).resolve()
        table = config.table(self.table)
        if self.database is not None:
            table = table.with_database(self.database)
        return config, table.with_listing(self.listed_format)


@dataclass(frozen=True)
class JobAnswer:
    """The result of a job: the newest version, or an error.

    `JobAnswer()` means that no answer arrived.
    """

    version: int | None = None
    """The number of the newest version after a successful refresh; None after an error or without an answer."""
    seconds: float = 0.0
    """The duration of the refresh."""
    kind: str = ""
    """The name of the error's class; empty without an error."""
    message: str = ""
    """The message of the error."""

    def to_message(self) -> dict[str, Any]:
        """Return the answer as a message of Dagster Pipes."""
        return {REQUEST: vars(self)}

    @classmethod
    def from_message(cls, message: Any) -> JobAnswer | None:
        """Return the answer that a message of Dagster Pipes contains; None for other messages.

        Unknown fields are ignored, so an answer can be parsed even if the job has another version of the package.
        """
        fields = message.get(REQUEST) if isinstance(message, Mapping) else None
        if not isinstance(fields, Mapping):
            return None
        return cls(**{name: value for name, value in fields.items() if name in cls.__dataclass_fields__})

    def to_error(self, job: str) -> MetastoreError:
        """Return the error as an exception of the class that it had in the job.

        Return a MetastoreError instead if that class is not one of this package, or needs more arguments than a
        message.

        Args:
            job: A name of the job, for the error message.
        """
        kind = getattr(errors, self.kind, MetastoreError)
        text = f"{self.message} ({job})"
        try:
            return kind(text) if isinstance(kind, type) and issubclass(kind, MetastoreError) else MetastoreError(text)
        except TypeError:  # Some classes need more arguments than a message.
            return MetastoreError(text)


def job_config(config: MetastoreConfig, table: TableConfig) -> dict[str, Any]:
    """Return a configuration with only one table, as a JSON object for `MetastoreConfig.model_validate`.

    Settings that the job does not need, such as checks and sensors, are left out. So are Spark settings and the section
    `emr_serverless`. The `engine` of the result is `emr_serverless.engine`, by default `spark`.
    """
    name = table.catalog.name if isinstance(table.catalog, CatalogConfig) else table.catalog
    table_document = table.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=_SEPARATE_FIELDS)
    table_document["columns"] = {
        column: policy.model_dump(mode="json", exclude_unset=True, exclude={"checks"})
        for column, policy in table.columns.items()
    }
    table_document |= {"catalog": name} if name is not None else {"uri": table.uri}
    table_document |= {key: list(value) for key, value in (("allow", table.allow), ("statistics", table.statistics))}
    document: dict[str, Any] = {
        "root": config.root,
        "storage_options": dict(config.storage_options),
        "engine": config.emr_serverless.engine if config.emr_serverless else "spark",
        "keep_versions": config.keep_versions,
        "tables": [table_document],
    }
    if name is not None and (name != EMBEDDED_CATALOG or name in config.catalogs):
        catalog = config.catalogs[name]
        document["catalogs"] = {name: {"type": catalog.type, **catalog.properties}}
    if isinstance(config.hidden_key, SecretStr):
        document["hidden_key"] = config.hidden_key.get_secret_value()
    return document
