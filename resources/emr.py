"""Refreshes as jobs of EMR Serverless, launched and listened to through dagster-aws's client of Dagster Pipes."""

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
"""A job is not given up because one look at it failed."""
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
    """Have one job refresh a table, and wait for it. Its log lines are the run's as they come.

    A run that is cancelled cancels the job, and so does one that fails while the job is at work. Raises what the job
    raised, with where its log is; ConfigError where the job could not know what the configuration refers to;
    MetastoreError where it cannot be launched, or ended without a word.
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
    """What a job for a table is told. Raises ConfigError where it would not know a variable."""
    shown = configuration.shown()
    config = VariableResolver(os.environ, keep_secret_references=True).resolve(shown)
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
    """The parameters of `StartJobRun`, but for what Pipes adds. What the configuration says of Spark is in
    `spark-defaults`, for there no value has to be quoted."""
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
    """Knows which job it started, and leaves none behind that nobody waits for."""

    def __init__(
        self, client: Any, injector: PipesS3ContextInjector, reader: PipesS3MessageReader, interval: float
    ) -> None:
        super().__init__(client, injector, reader, poll_interval=interval)
        self.job = ""
        # What EMR answers is a URL with a token in it, and the run's log is for everybody who sees Dagster's UI.
        client.get_dashboard_for_job_run = _how_to_look

    def run_job(self, context: OpExecutionContext, parameters: Any, extras: dict[str, Any]) -> None:
        """As `run`; cancels the job in whatever way this ends while the job does not."""
        application = parameters["applicationId"]
        try:
            self.run(context=context, start_job_run_params=parameters, extras=extras)
            # Pipes has the step yield a result for each asset, as the job would tell them. Ours are told by the run, as
            # with other engines: those of partitions are stored, and what has not changed is no result.
            context.get_step_execution_context()._requires_typed_event_stream = False
        except BaseException:
            with suppress(BotoCoreError, ClientError):
                if self.job and self.state(application)[0] not in _ENDED:
                    self.client.cancel_job_run(applicationId=application, jobRunId=self.job)
            raise

    def state(self, application: str) -> tuple[str, str]:
        """The job's state, and what EMR says of it."""
        found = self.client.get_job_run(applicationId=application, jobRunId=self.job)["jobRun"]
        return found["state"], found.get("stateDetails") or ""

    def _start(self, context: Any, params: Any) -> Any:
        params = {**params, "tags": {name: tag_value(value) for name, value in params["tags"].items()}}
        response = super()._start(context, params)
        self.job = response["jobRunId"]
        return response

    def _read_messages(self, context: Any, session: PipesSession, response: Any) -> None:
        """Nothing: messages on S3 are read while the job is at work. The client expects CloudWatch here, and warns."""


class _Reader(PipesS3MessageReader):
    """Reads messages below a folder of their own, and keeps them also when the job fails."""

    def __init__(self, bucket: str, prefix: str, client: Any, interval: float) -> None:
        super().__init__(interval=interval, bucket=bucket, client=client)
        self._prefix = prefix
        self._handler: PipesMessageHandler | None = None

    @property
    def expected_writer_count(self) -> int:
        """One, as Dagster itself has it, which warns on each run that it may come to be told otherwise."""
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
        """How the job says that it ended; None where it did not say."""
        job_request = self._handler.get_custom_messages() if self._handler else ()
        return next((answer for answer in map(Answer.of, job_request) if answer is not None), None)


def tag_value(text: str) -> str:
    """A text as AWS takes it for a tag's value: keys of partitions, which Dagster makes one of, may have a `%`."""
    return _NOT_IN_TAGS.sub("_", text)[:256]


def _failure(client: _Client, reader: _Reader, settings: EmrServerlessConfig, table: str) -> MetastoreError:
    """Why a job did not end well: in its own words, else in those of EMR."""
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
    """VariableResolver that the configuration gives a job's driver."""
    return {name.removeprefix(_DRIVER_VARIABLE) for name in settings.spark if name.startswith(_DRIVER_VARIABLE)}


@contextmanager
def _folder(s3: Any, folder: str, name: str) -> Iterator[tuple[str, str]]:
    """Bucket and prefix of what one job is told and tells, removed in the end."""
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
