"""Refreshes as EMR Serverless jobs, launched and followed with dagster-aws's Pipes client."""

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from dagster import AssetExecutionContext, OpExecutionContext, PipesMessageHandler, PipesSession
from dagster_aws.pipes import PipesEMRServerlessClient, PipesS3ContextInjector, PipesS3MessageReader

from metastore_assets.config import TableConfig
from metastore_assets.config.emr import EmrServerlessConfig, job_folder, job_spark_properties
from metastore_assets.config.variables import VariableResolver, required_variables
from metastore_assets.emr.request import REQUEST, SCRIPT, Answer, Request, job_config, package_version
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.pipeline.hidden_values import KEY_VARIABLE
from metastore_assets.resources.configuration import Configuration
from metastore_assets.resources.s3 import s3_options
from metastore_assets.spark.default_settings import normalize_settings

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource

_DRIVER_VARIABLE = "spark.emr-serverless.driverEnv."
_RETRIES = Config(retries={"mode": "standard", "max_attempts": 10})
"""A single failed request must not end a job."""
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9 /_.:=+@-]")
_ENDED = {"SUCCESS", "FAILED", "CANCELLED", "CANCELLING"}


def refresh_on_emr(
    context: AssetExecutionContext,
    configuration: Configuration,
    table: TableConfig,
    *,
    full: bool,
    partitions: tuple[str, ...],
) -> Answer:
    """Refresh a table in one job and wait for it. The job's log lines appear in the run's log.

    The job is cancelled if the run is cancelled or fails.

    Raises:
        ConfigError: The job would miss a variable of the configuration.
        MetastoreError: The job's error with the path of its log, or the job could not be launched or ended without an
            answer.
    """
    now = configuration.now()
    settings = now.emr_serverless
    assert settings is not None
    request = request_of(configuration, table.name, full=full, partitions=partitions)
    session = _session(configuration.s3, settings.region)
    endpoint = s3_options(configuration.s3).get("aws_endpoint") if configuration.s3 else None
    s3 = session.client("s3", endpoint_url=endpoint, config=_RETRIES)
    try:
        with _folder(s3, job_folder(now), f"{context.run.run_id}-{secrets.token_hex(4)}") as (bucket, prefix):
            s3.put_object(Bucket=bucket, Key=f"{prefix}/run.py", Body=SCRIPT.encode())
            reader = _Reader(bucket, prefix, s3, settings.interval)
            client = _Client(
                session.client("emr-serverless", config=_RETRIES),
                PipesS3ContextInjector(bucket=bucket, client=s3, key_prefix=f"{prefix}/"),
                reader,
                settings.interval,
            )
            parameters = job_of(settings, table.name, f"s3://{bucket}/{prefix}/run.py", session.region_name)
            try:
                client.run_job(context.op_execution_context, parameters, {REQUEST: request.to_json()})
            except RuntimeError as error:
                raise _failure(client, reader, settings, table.name) from error
            return reader.answer() or _unheard(context, table.name, client.job)
    except (BotoCoreError, ClientError) as error:
        raise MetastoreError(
            f"table {table.name!r}: a refresh as a job of EMR Serverless application {settings.application}: {error}"
        ) from error


def request_of(configuration: Configuration, table: str, *, full: bool, partitions: tuple[str, ...]) -> Request:
    """Return the request of a job for a table. Raise ConfigError if the job would miss a variable."""
    shown = configuration.shown()
    config = VariableResolver(os.environ, preserve_secret_references=True).resolve(shown)
    settings, own = config.emr_serverless, config.table(table)
    assert settings is not None
    job_request = job_config(config, own)
    known = {*settings.secrets, *(_environment_of(settings))}
    unknown = sorted(required_variables(job_request) - known)
    if unknown:
        raise ConfigError(
            f"table {table!r}: the configuration refers to {', '.join(unknown)}, which jobs of EMR Serverless do not "
            f"know: say under `emr_serverless.secrets` which secret of AWS Secrets Manager that is, or, of what is no "
            f"secret, under `emr_serverless.spark` what it is: `{_DRIVER_VARIABLE}{unknown[0]}: …`"
        )
    return Request(
        version=package_version(),
        config=job_request,
        table=table,
        full=full,
        partitions=partitions,
        needs_key=own.hides_values and (KEY_VARIABLE in os.environ or config.hidden_key is not None),
        secrets=settings.secrets,
        database=own.database,
        listed=own.declared_format,
    )


def job_of(settings: EmrServerlessConfig, table: str, script: str, region: str | None = None) -> dict[str, Any]:
    """Return the parameters of `StartJobRun` without those that Pipes adds.

    Spark settings go into `spark-defaults`, where values need no quoting.
    """
    found = job_spark_properties(settings, normalize_settings(settings.spark), region)
    fixed = [name for name in job_spark_properties(settings, {}, region) if not found[name].split()[1:]]
    overrides: dict[str, Any] = {}
    left = {name: value for name, value in found.items() if name not in fixed}
    if left:
        overrides["applicationConfiguration"] = [{"classification": "spark-defaults", "properties": left}]
    if settings.logs:
        overrides["monitoringConfiguration"] = {"s3MonitoringConfiguration": {"logUri": settings.logs}}
    return {
        "applicationId": settings.application,
        "executionRoleArn": settings.execution_role,
        "name": f"metastore-{table}",
        "executionTimeoutMinutes": settings.timeout_minutes,
        "tags": dict(settings.tags),
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": script,
                "sparkSubmitParameters": " ".join(f"--conf {name}={found[name]}" for name in fixed),
            }
        },
        **({"configurationOverrides": overrides} if overrides else {}),
    }


class _Client(PipesEMRServerlessClient):
    """A Pipes client that knows its job and cancels it when the run ends first."""

    def __init__(
        self, client: Any, injector: PipesS3ContextInjector, reader: PipesS3MessageReader, interval: float
    ) -> None:
        super().__init__(client, injector, reader, poll_interval=interval)
        self.job = ""
        # The dashboard's URL contains a token, and everyone who sees Dagster's UI can read the run's log.
        client.get_dashboard_for_job_run = _how_to_look

    def run_job(self, context: OpExecutionContext, parameters: Any, extras: dict[str, Any]) -> None:
        """Run a job; cancel it if this call ends before the job does."""
        application = parameters["applicationId"]
        try:
            self.run(context=context, start_job_run_params=parameters, extras=extras)
            # Pipes makes the step yield a result per asset. Here the run reports the results, as with other engines:
            # partition events are stored directly, and unchanged assets have no result.
            context.get_step_execution_context()._requires_typed_event_stream = False
        except BaseException:
            with suppress(BotoCoreError, ClientError):
                if self.job and self.state(application)[0] not in _ENDED:
                    self.client.cancel_job_run(applicationId=application, jobRunId=self.job)
            raise

    def state(self, application: str) -> tuple[str, str]:
        """Return the job's state and EMR's details."""
        found = self.client.get_job_run(applicationId=application, jobRunId=self.job)["jobRun"]
        return found["state"], found.get("stateDetails") or ""

    def _start(self, context: Any, params: Any) -> Any:
        params = {**params, "tags": {name: tag_value(value) for name, value in params["tags"].items()}}
        response = super()._start(context, params)
        self.job = response["jobRunId"]
        return response

    def _read_messages(self, context: Any, session: PipesSession, response: Any) -> None:
        """Skip CloudWatch, which the client reads here with a warning: messages on S3 are read while the job runs."""


class _Reader(PipesS3MessageReader):
    """Reads messages below a folder per job, and makes them available even if the job fails."""

    def __init__(self, bucket: str, prefix: str, client: Any, interval: float) -> None:
        super().__init__(interval=interval, bucket=bucket, client=client)
        self._prefix = prefix
        self._handler: PipesMessageHandler | None = None

    @property
    def expected_writer_count(self) -> int:
        """One writer, as in Dagster's default, set here to avoid a warning in each run."""
        return 1

    @contextmanager
    def read_messages(self, handler: PipesMessageHandler) -> Iterator[Any]:
        self._handler = handler
        with super().read_messages(handler) as parameters:
            yield parameters

    @contextmanager
    def get_params(self) -> Iterator[Any]:
        with super().get_params() as parameters:
            yield {**parameters, "key_prefix": f"{self._prefix}/messages"}

    def answer(self) -> Answer | None:
        """Return the job's answer; None if there is none."""
        job_request = self._handler.get_custom_messages() if self._handler else ()
        return next((answer for answer in map(Answer.of, job_request) if answer is not None), None)


def tag_value(text: str) -> str:
    """Return text as a valid tag value of AWS. Partition keys, which Dagster puts into a tag, may have a `%`."""
    return _NOT_IN_TAGS.sub("_", text)[:256]


def _failure(client: _Client, reader: _Reader, settings: EmrServerlessConfig, table: str) -> MetastoreError:
    """Return the error of a failed job: the job's message, else EMR's."""
    where = f"job {client.job} of EMR Serverless application {settings.application}; {_log_of(settings, client.job)}"
    answer = reader.answer()
    if answer is not None and answer.version is None:
        return answer.error(where)
    state, details = client.state(settings.application)
    said = "was cancelled" if state.startswith("CANCEL") else "failed without a word"
    return MetastoreError(f"table {table!r}: the refresh {said}{f': {details}' if details else ''} ({where})")


def _log_of(settings: EmrServerlessConfig, job: str) -> str:
    if not settings.logs:
        return "its driver's log is where the application is configured to write logs, or in its console"
    folder = f"{settings.logs.rstrip('/')}/applications/{settings.application}/jobs/{job}"
    return f"its driver's log is {folder}/SPARK_DRIVER/stderr.gz"


def _how_to_look(*, applicationId: str, jobRunId: str) -> str:
    command = "aws emr-serverless get-dashboard-for-job-run"
    return f"`{command} --application-id {applicationId} --job-run-id {jobRunId}` tells it"


def _unheard(context: AssetExecutionContext, table: str, job: str) -> Answer:
    context.log.warning("table %r: job %s ended well, and what it told did not arrive", table, job)
    return Answer()


def _environment_of(settings: EmrServerlessConfig) -> set[str]:
    """Return the names of the variables that the configuration sets for a job's driver."""
    return {name.removeprefix(_DRIVER_VARIABLE) for name in settings.spark if name.startswith(_DRIVER_VARIABLE)}


@contextmanager
def _folder(s3: Any, folder: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield bucket and prefix of a job's messages, and delete them at the end."""
    bucket, _, above = folder.removeprefix("s3://").partition("/")
    prefix = f"{above}/{name}" if above else name
    try:
        yield bucket, prefix
    finally:
        with suppress(BotoCoreError, ClientError):
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
                for entry in page.get("Contents", ()):
                    s3.delete_object(Bucket=bucket, Key=entry["Key"])


def _session(s3: "S3Resource | None", region: str | None) -> Any:
    options: Mapping[str, str] = s3_options(s3) if s3 else {}
    return boto3.session.Session(
        aws_access_key_id=options.get("aws_access_key_id"),
        aws_secret_access_key=options.get("aws_secret_access_key"),
        aws_session_token=options.get("aws_session_token"),
        region_name=region or options.get("aws_region"),
    )
