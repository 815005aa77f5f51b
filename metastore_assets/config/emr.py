"""What `metastore.yaml` says of refreshes that are jobs of EMR Serverless, and what such a job cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from metastore_assets.config.policy import ConfigModel
from metastore_assets.config.variables import has_reference

if TYPE_CHECKING:
    from metastore_assets.config.models import MetastoreConfig

EMR_SERVERLESS = "emr-serverless"
"""The value of `engine` that makes a refresh a job there."""
SECTION = "emr_serverless"
"""The key of the configuration that says of it what has to be known."""

_WHO = ("spark.emr-serverless.driverEnv", "spark.executorEnv")
_APPLICATION = re.compile(r"[0-9a-z]{1,64}")
_ROLE = re.compile(r"arn:[a-z-]+:iam::\d{12}:role/\S+")
_S3 = re.compile(r"s3://[^/\s]+(/\S*)?")
_DATABASE = re.compile(r"sqlite:|duckdb:", re.IGNORECASE)
_SECRET = re.compile(r"secret|password|token|credential|access[-_.]?key|^key$|api[-_.]?key", re.IGNORECASE)
_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")


class EmrServerlessConfig(ConfigModel):
    """The application that jobs run in, as whom, and with which Python."""

    references: ClassVar[frozenset[str]] = frozenset(
        {
            "application",
            "execution_role",
            "environment",
            "python",
            "folder",
            "logs",
            "region",
            "spark",
            "secrets",
            "tags",
        }
    )

    application: str
    """Its id, such as `00f1qs2u5gdh6a0l`."""
    execution_role: str
    """Of the jobs: `arn:aws:iam::123456789012:role/metastore-refresh`."""
    environment: str | None = None
    """The archive of the Python environment, `s3://…/environment.tar.gz`. Absent: the application's image has it."""
    python: str = "./environment/bin/python"
    """The Python of driver and executors: where the archive has it, which is unpacked in `./environment`; or of the
    image, by its absolute path."""
    folder: str | None = None
    """Where what a job is told lies while it runs, and what it answers: `s3://bucket/folder`. Absent:
    `emr-serverless.jobs` below the root, where that is on S3."""
    logs: str | None = None
    """Where EMR writes the logs of jobs: `s3://bucket/folder/`. Absent: as the application is configured."""
    region: str | None = None
    """Of the application. Absent: as the environment says."""
    spark: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Spark's properties of the jobs, in place of those under `spark`."""
    engine: Literal["spark", "auto"] = "spark"
    """What `engine` is within the job: with `auto` a small commit is read by the driver, and takes no executors."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """By variable of the environment that the configuration refers to: the name or ARN of a secret in AWS Secrets
    Manager, which the job looks up itself."""
    timeout_minutes: int = Field(default=720, ge=0)
    """After which EMR cancels a job; 0: never."""
    interval: float = Field(default=5.0, gt=0)
    """Seconds between two looks for the state of a job and for what it tells."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Of jobs, beside those that Dagster sets; costs can be told apart by them."""

    @field_validator("application")
    @classmethod
    def _application(cls, value: str) -> str:
        return _fits(value, _APPLICATION, "the id of an application, such as 00f1qs2u5gdh6a0l")

    @field_validator("execution_role")
    @classmethod
    def _role(cls, value: str) -> str:
        return _fits(value, _ROLE, "the ARN of a role, such as arn:aws:iam::123456789012:role/metastore-refresh")

    @field_validator("environment", "folder", "logs")
    @classmethod
    def _on_s3(cls, value: str | None) -> str | None:
        return value if value is None else _fits(value, _S3, "a place on S3, such as s3://bucket/folder")


def folder_of(config: MetastoreConfig) -> str:
    """Where what jobs are told and what they answer lies, without a slash at the end. `config` has passed `problem`."""
    settings = config.emr_serverless
    given = settings.folder if settings else None
    return (given or f"{config.root.rstrip('/')}/emr-serverless.jobs").rstrip("/")


def problem(config: MetastoreConfig) -> str | None:
    """Why refreshes of a configuration cannot be jobs of EMR Serverless, and what to do; None where they can.

    What refers to variables is taken to be right: the configuration is looked at again when they are known.
    """
    if config.engine != EMR_SERVERLESS:
        return None
    settings = config.emr_serverless
    if settings is None:
        return (
            f"`engine: {EMR_SERVERLESS}` takes a section `{SECTION}` that says at least `application` and "
            "`execution_role`"
        )
    if settings.folder is None and not config.root.startswith(("s3://", "${")):
        return f"`{SECTION}.folder` is missing: what jobs are told lies on S3, and the root {config.root!r} does not"
    for what, place in _places(config):
        if _is_local(place):
            return (
                f"{what} is {place!r}, on this machine, where jobs of EMR Serverless cannot see it: put it on S3, or "
                "use another `engine`"
            )
    for what, key, value in _settings(config):
        if _is_secret(key, value):
            return (
                f"{what}.{key} is a secret in plain text, which jobs of EMR Serverless are not told: write it as "
                f"${{NAME}}, and say under `{SECTION}.secrets` which secret of AWS Secrets Manager NAME is; access to "
                "S3 is better left out, for jobs have that of their execution role"
            )
    return None


def _places(config: MetastoreConfig) -> Iterator[tuple[str, str]]:
    yield "root", config.root
    for table in config.tables:
        if table.catalog is None:
            yield f"table {table.name!r}: uri", table.uri
        for old, new in table.path_mapping.items():
            yield f"table {table.name!r}: path_mapping of {old!r}", new
    for database in config.databases:
        for old, new in database.path_mapping.items():
            yield f"database {database.database!r}: path_mapping of {old!r}", new
    for old, new in config.path_mapping.items():
        yield f"path_mapping of {old!r}", new
    catalogs = [*(table.catalog for table in config.tables), *(database.catalog for database in config.databases)]
    used = {getattr(catalog, "name", catalog) for catalog in catalogs}
    for name, catalog in config.catalogs.items():
        place = catalog.properties.get("uri", "")
        if name in used and _DATABASE.match(place):
            yield f"catalog {name!r}: uri", place


def _is_local(place: str) -> bool:
    if place.startswith("${"):
        return False
    return "://" not in place or place.startswith("file:") or _DATABASE.match(place) is not None


def _settings(config: MetastoreConfig) -> Iterator[tuple[str, str, str]]:
    for key, value in config.storage_options.items():
        yield "storage_options", key, value
    for table in config.tables:
        for key, value in table.storage_options.items():
            yield f"table {table.name!r}: storage_options", key, value
    for database in config.databases:
        for key, value in database.storage_options.items():
            yield f"database {database.database!r}: storage_options", key, value
    for name, catalog in config.catalogs.items():
        for key, value in catalog.properties.items():
            yield f"catalogs.{name}", key, value
    if config.hidden_key is not None:
        yield "the configuration", "hidden_key", config.hidden_key.get_secret_value()


def _is_secret(key: str, value: str) -> bool:
    if has_reference(value) or not value:
        return False
    return key == "hidden_key" or _SECRET.search(key) is not None or _PASSWORD.search(value) is not None


def _fits(value: str, pattern: re.Pattern[str], what: str) -> str:
    if not has_reference(value) and not pattern.fullmatch(value):
        raise ValueError(what)
    return value


def properties(settings: EmrServerlessConfig, own: Mapping[str, str], region: str | None) -> dict[str, str]:
    """Spark's properties of a job: `own`, those of the configuration as texts, over what the Metastore needs.

    `region` is that of the application, in which what is asked for is, unless storage options say otherwise.
    """
    python, name = settings.python, settings.python.removeprefix("./").partition("/")[0]
    archives = [f"{settings.environment}#{name}"] if settings.environment else []
    found = {
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": python,
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": python,
        "spark.executorEnv.PYSPARK_PYTHON": python,
        # One thread per task: Spark already runs as many tasks as there are cores.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        # Driver and workers import nothing from the folders that they are started in.
        **{f"{who}.PYTHONSAFEPATH": "1" for who in _WHO},
        **({f"{who}.AWS_REGION": region for who in _WHO} if region else {}),
        **own,
    }
    if archives:
        found["spark.archives"] = ",".join([*archives, *filter(None, [own.get("spark.archives")])])
    return found
