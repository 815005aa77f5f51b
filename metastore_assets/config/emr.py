"""The section `emr_serverless`: settings of refreshes on EMR Serverless, and their validation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from metastore_assets.config.base import ConfigModel
from metastore_assets.config.variables import has_reference

if TYPE_CHECKING:
    from metastore_assets.config.models import MetastoreConfig

EMR_SERVERLESS = "emr-serverless"
"""The value of `engine` that makes each refresh a job of EMR Serverless."""
SECTION = "emr_serverless"
"""The key of the configuration with the settings of these jobs."""

_ENVIRONMENT_PREFIXES = ("spark.emr-serverless.driverEnv", "spark.executorEnv")
"""Prefixes of the Spark properties that set environment variables of the driver and of the executors."""
_APPLICATION = re.compile(r"[0-9a-z]{1,64}")
_ROLE = re.compile(r"arn:[a-z-]+:iam::\d{12}:role/\S+")
_S3_SCHEMES = ("s3://", "s3a://")
"""The schemes of roots on S3."""
_S3 = re.compile(r"s3://[^/\s]+(/\S*)?")
_DATABASE_FILE = re.compile(r"sqlite:|duckdb:", re.IGNORECASE)
_SECRET_NAME = re.compile(r"secret|password|token|credential|access[-_.]?key|^key$|api[-_.]?key", re.IGNORECASE)
_PASSWORD_IN_URI = re.compile(r"://[^/@\s:]*:[^/@\s]+@")


class EmrServerlessConfig(ConfigModel):
    """Settings of the jobs on EMR Serverless: application, role, Python environment, folders and secrets."""

    references: ClassVar[frozenset[str]] = frozenset(
        {
            *("application", "execution_role", "environment", "python", "folder"),
            *("logs", "region", "spark", "secrets", "tags"),
        }
    )

    application: str
    """Id of the application, such as `00f1qs2u5gdh6a0l`."""
    execution_role: str
    """Role of the jobs, such as `arn:aws:iam::123456789012:role/metastore-refresh`."""
    environment: str | None = None
    """Archive of the Python environment, `s3://…/environment.tar.gz`. Default: the application's image contains it."""
    python: str = "./environment/bin/python"
    """Python of the driver and the executors: its path in the archive, which is unpacked in `./environment`, or its
    absolute path in the image."""
    folder: str | None = None
    """Folder for the requests and answers of running jobs, `s3://bucket/folder`. Default: `emr-serverless.jobs` below a
    root on S3."""
    logs: str | None = None
    """Folder for the logs of jobs, `s3://bucket/folder/`. Default: as the application is configured."""
    region: str | None = None
    """Region of the application. Default: the region of the environment."""
    spark: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Spark properties of the jobs. They replace those under the top-level key `spark`."""
    engine: Literal["spark", "auto"] = "spark"
    """The value of `engine` inside the job. `auto`: the driver reads a small commit itself, without executors."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """For each environment variable that the configuration refers to: the name or ARN of its secret in AWS Secrets
    Manager, which the job reads."""
    timeout_minutes: int = Field(default=720, ge=0)
    """Minutes after which EMR cancels a job; 0 for no limit."""
    interval: float = Field(default=5.0, gt=0)
    """Seconds between two requests for the state and the progress of a job."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Tags of the jobs, for example for cost reports, in addition to the tags that Dagster sets."""

    @field_validator("application")
    @classmethod
    def _validate_application(cls, value: str) -> str:
        return _validate(value, _APPLICATION, "the id of an application, such as 00f1qs2u5gdh6a0l")

    @field_validator("execution_role")
    @classmethod
    def _validate_role(cls, value: str) -> str:
        return _validate(value, _ROLE, "the ARN of a role, such as arn:aws:iam::123456789012:role/metastore-refresh")

    @field_validator("environment", "folder", "logs")
    @classmethod
    def _validate_s3_location(cls, value: str | None) -> str | None:
        return value if value is None else _validate(value, _S3, "a location on S3, such as s3://bucket/folder")


def job_folder(config: MetastoreConfig) -> str:
    """Return the URI of the folder with requests to jobs and their answers, without a trailing slash.

    Args:
        config: A configuration for which `emr_obstacle` returned None.
    """
    settings = config.emr_serverless
    folder = settings.folder if settings else None
    uri = (folder or f"{config.root.rstrip('/')}/emr-serverless.jobs").rstrip("/")
    return f"s3://{uri.partition('://')[2]}" if uri.startswith(_S3_SCHEMES) else uri


def emr_obstacle(config: MetastoreConfig) -> str | None:
    """Return why a configuration with `engine: emr-serverless` cannot work, with advice; None if it can.

    The result is None for any other `engine`. Locations that begin with a variable, such as `${ROOT}/orders`, count as
    valid. A secret counts as valid if it contains a variable.
    """
    if config.engine != EMR_SERVERLESS:
        return None
    settings = config.emr_serverless
    if settings is None:
        return (
            f"`engine: {EMR_SERVERLESS}` needs a section `{SECTION}` with at least `application` and `execution_role`"
        )
    if settings.folder is None and not config.root.startswith((*_S3_SCHEMES, "${")):
        return f"`{SECTION}.folder` is missing: requests to jobs are stored on S3, and the root {config.root!r} is not"
    for key, location in _locations(config):
        if _is_local(location):
            return (
                f"{key} is {location!r}, on this machine, where jobs of EMR Serverless cannot see it: move it to S3, "
                "or use another `engine`"
            )
    for section, key, value in _settings(config):
        if _is_secret(key, value):
            return (
                f"{section}.{key} is a secret in plain text, which is not passed to jobs of EMR Serverless: write it "
                f"as ${{NAME}}, and set `{SECTION}.secrets.NAME` to the secret's name in AWS Secrets Manager; leave "
                "out access keys for S3, because jobs have the access of their execution role"
            )
    return None


def _locations(config: MetastoreConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, location) for each location that a job reads or writes.

    The key is for messages.
    """
    yield "root", config.root
    for table in config.tables:
        if table.catalog is None:
            yield f"{table.label}: uri", table.uri
    for entry in config.entries:
        for old, new in entry.path_mapping.items():
            yield f"{entry.label}: path_mapping of {old!r}", new
    for old, new in config.path_mapping.items():
        yield f"path_mapping of {old!r}", new
    catalogs = [*(table.catalog for table in config.tables), *(database.catalog for database in config.databases)]
    used_catalogs = {getattr(catalog, "name", catalog) for catalog in catalogs}
    for name, catalog in config.catalogs.items():
        uri = catalog.properties.get("uri", "")
        if name in used_catalogs and _DATABASE_FILE.match(uri):
            yield f"catalog {name!r}: uri", uri


def _is_local(location: str) -> bool:
    if location.startswith("${"):
        return False
    is_file = location[:5].lower() == "file:"
    return "://" not in location or is_file or _DATABASE_FILE.match(location) is not None


def _settings(config: MetastoreConfig) -> Iterator[tuple[str, str, str]]:
    """Yield (section, key, value) for each setting that may be a secret."""
    for key, value in config.storage_options.items():
        yield "storage_options", key, value
    for entry in config.entries:
        for key, value in entry.storage_options.items():
            yield f"{entry.label}: storage_options", key, value
    for name, catalog in config.catalogs.items():
        for key, value in catalog.properties.items():
            yield f"catalogs.{name}", key, value
    if config.hidden_key is not None:
        yield "the configuration", "hidden_key", config.hidden_key.get_secret_value()


def _is_secret(key: str, value: str) -> bool:
    if has_reference(value) or not value:
        return False
    return key == "hidden_key" or _SECRET_NAME.search(key) is not None or _PASSWORD_IN_URI.search(value) is not None


def _validate(value: str, pattern: re.Pattern[str], expected: str) -> str:
    """Return a value that matches the pattern or refers to a variable.

    Raises ValueError for any other value.
    """
    if not has_reference(value) and not pattern.fullmatch(value):
        raise ValueError(expected)
    return value


def job_spark_properties(
    settings: EmrServerlessConfig, user_properties: Mapping[str, str], region: str | None
) -> dict[str, str]:
    """Return the Spark properties of a job: defaults, and those of the configuration.

    If both have a property, the value in the configuration is used. The archive with the Python environment is added to
    the configured `spark.archives`.

    Args:
        settings: The section `emr_serverless`.
        user_properties: Spark properties of the configuration.
        region: Region of the application, which becomes the default region of the job's requests; None for none.
    """
    python, name = settings.python, settings.python.removeprefix("./").partition("/")[0]
    archives = [f"{settings.environment}#{name}"] if settings.environment else []
    properties = {
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": python,
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": python,
        "spark.executorEnv.PYSPARK_PYTHON": python,
        # One thread per task: Spark already runs as many tasks as there are cores.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        # The driver and the workers import nothing from their working folders.
        **{f"{prefix}.PYTHONSAFEPATH": "1" for prefix in _ENVIRONMENT_PREFIXES},
        **({f"{prefix}.AWS_REGION": region for prefix in _ENVIRONMENT_PREFIXES} if region else {}),
        **user_properties,
    }
    if archives:
        properties["spark.archives"] = ",".join([*archives, *filter(None, [user_properties.get("spark.archives")])])
    return properties
