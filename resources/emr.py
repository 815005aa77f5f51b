"""Refreshes that run as EMR Serverless jobs, with the Pipes client of dagster-aws."""

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
from metastore_assets.emr.request import REQUEST, SCRIPT, JobAnswer, JobRequest, job_config, package_version
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.pipeline.hidden_values import KEY_VARIABLE
from metastore_assets.resources.configuration import Configuration
from metastore_assets.resources.s3 import s3_options
from metastore_assets.spark.default_settings import normalize_settings

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource

_DRIVER_VARIABLE = "spark.emr-serverless.driverEnv."
_RETRIES = Config(retries={"mode": "standard", "max_attempts": 10})
"""The configuration of AWS clients: a single failed request must not end a job."""
_INVALID_TAG_CHARACTERS = re.compile(r"[^A-Za-z0-9 /_.:=+@-]")
_ENDED = {"SUCCESS", "FAILED", "CANCELLED", "CANCELLING"}


def refresh_on_emr(
    context: AssetExecutionContext,
    configuration: Configuration,
    table: TableConfig,
    *,
    full: bool,
    partitions: tuple[str, ...],
) -> JobAnswer:
    """Launch a job that refreshes a table, wait for its end, and return its answer.

    Log lines of the job appear in the run's log. If the run is cancelled or fails, the job is cancelled.

    Args:
        context: The context of the run.
        configuration: The configuration that has the table.
        table: The table.
        full: Whether to read every file again.
        partitions: Partitions to read again: keys or patterns.

    Returns:
        The answer of the job; an empty answer if the job succeeded and its answer did not arrive.

    Raises:
        ConfigError: The configuration refers to variables that the job would not have.
        MetastoreError: The job could not be launched, or it failed. If it failed, the message says where its log is.
    """
    config = configuration.resolved()
    settings = config.emr_serverless
    assert settings is not None
    request = build_request(configuration, table.name, full=full, partitions=partitions)
    session = _session(configuration.s3, settings.region)
    endpoint = s3_options(configuration.s3).get("aws_endpoint") if configuration.s3 else None
    s3 = session.client("s3", endpoint_url=endpoint, config=_RETRIES)
    try:
        with _folder(s3, job_folder(config), f"{context.run.run_id}-{secrets.token_hex(4)}") as (bucket, prefix):
            s3.put_object(Bucket=bucket, Key=f"{prefix}/run.py", Body=SCRIPT.encode())
            reader = _MessageReader(bucket, prefix, s3, settings.interval)
            client = _JobClient(
                session.client("emr-serverless", config=_RETRIES),
                PipesS3ContextInjector(bucket=bucket, client=s3, key_prefix=f"{prefix}/"),
                reader,
                settings.interval,
            )
            parameters = job_parameters(settings, table.name, f"s3://{bucket}/{prefix}/run.py", session.region_name)
            try:
                client.run_job(context.op_execution_context, parameters, {REQUEST: request.to_json()})
            except RuntimeError as error:
                raise _job_error(client, reader, settings, table.name) from error
            return reader.answer() or _missing_answer(context, table.name, client.job)
    except (BotoCoreError, ClientError) as error:
        raise MetastoreError(
            f"table {table.name!r}: the job of EMR Serverless application {settings.application} failed: {error}"
        ) from error


def build_request(configuration: Configuration, table: str, *, full: bool, partitions: tuple[str, ...]) -> JobRequest:
    """Create the request for a job that refreshes a table.

    Args:
        configuration: The configuration that has the table.
        table: The name of the table.
        full: Whether to read every file again.
        partitions: Partitions to read again: keys or patterns.

    Raises:
        ConfigError: The configuration refers to variables that the job would not have.
    """
    unresolved_config = configuration.unresolved()
    config = VariableResolver(os.environ, preserve_secret_references=True).resolve(unresolved_config)
    settings, table_config = config.emr_serverless, config.table(table)
    assert settings is not None
    document = job_config(config, table_config)
    available_names = {*settings.secrets, *_driver_variables(settings)}
    missing_names = sorted(required_variables(document) - available_names)
    if missing_names:
        raise ConfigError(
            f"table {table!r}: the configuration refers to {', '.join(missing_names)}, which EMR Serverless jobs do "
            f"not have: name a secret of AWS Secrets Manager for it under `emr_serverless.secrets`, or, if not secret, "
            f"set it under `emr_serverless.spark`: `{_DRIVER_VARIABLE}{missing_names[0]}: …`"
        )
    return JobRequest(
        version=package_version(),
        config=document,
        table=table,
        full=full,
        partitions=partitions,
        needs_key=table_config.hides_values and (KEY_VARIABLE in os.environ or config.hidden_key is not None),
        secrets=settings.secrets,
        database=table_config.database,
        listed_format=table_config.declared_format,
    )


def job_parameters(settings: EmrServerlessConfig, table: str, script: str, region: str | None = None) -> dict[str, Any]:
    """Return the parameters of the request `StartJobRun`, except those that Pipes adds.

    Args:
        settings: The settings under `emr_serverless`.
        table: The name of the table.
        script: The URI of the job's program.
        region: The AWS region; None if unknown.
    """
    properties = job_spark_properties(settings, normalize_settings(settings.spark), region)
    # Properties that every job needs are passed as `--conf`, the others as `spark-defaults`, where values need no
    # quotes.
    fixed_names = [name for name in job_spark_properties(settings, {}, region) if not properties[name].split()[1:]]
    overrides: dict[str, Any] = {}
    defaults = {name: value for name, value in properties.items() if name not in fixed_names}
    if defaults:
        overrides["applicationConfiguration"] = [{"classification": "spark-defaults", "properties": defaults}]
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
                "sparkSubmitParameters": " ".join(f"--conf {name}={properties[name]}" for name in fixed_names),
            }
        },
        **({"configurationOverrides": overrides} if overrides else {}),
    }


class _JobClient(PipesEMRServerlessClient):
    """A Pipes client that cancels its job if the run ends before the job does."""

    def __init__(
        self, client: Any, injector: PipesS3ContextInjector, reader: PipesS3MessageReader, interval: float
    ) -> None:
        super().__init__(client, injector, reader, poll_interval=interval)
        self.job = ""
        # Log a command in place of the dashboard's URL, which contains a token: all users of Dagster can read the log.
        client.get_dashboard_for_job_run = _dashboard_command

    def run_job(self, context: OpExecutionContext, parameters: Any, extras: dict[str, Any]) -> None:
        """Run a job and wait for its end.

        If this call is interrupted or fails, cancel the job.

        Args:
            context: The context of the op.
            parameters: The parameters of `StartJobRun`.
            extras: The data that Pipes transports to the job.
        """
        application = parameters["applicationId"]
        try:
            self.run(context=context, start_job_run_params=parameters, extras=extras)
            # By default Pipes requires a result for each asset from the job. Here the run itself reports the results,
            # as with other engines.
            context.get_step_execution_context()._requires_typed_event_stream = False
        except BaseException:
            with suppress(BotoCoreError, ClientError):
                if self.job and self.state(application)[0] not in _ENDED:
                    self.client.cancel_job_run(applicationId=application, jobRunId=self.job)
            raise

    def state(self, application: str) -> tuple[str, str]:
        """Request the state of the job, such as `FAILED`, and EMR's details about it."""
        job_run = self.client.get_job_run(applicationId=application, jobRunId=self.job)["jobRun"]
        return job_run["state"], job_run.get("stateDetails") or ""

    def _start(self, context: Any, params: Any) -> Any:
        params = {**params, "tags": {name: tag_value(value) for name, value in params["tags"].items()}}
        response = super()._start(context, params)
        self.job = response["jobRunId"]
        return response

    def _read_messages(self, context: Any, session: PipesSession, response: Any) -> None:
        """Do nothing: `_MessageReader` reads messages from S3.

        The base class would search CloudWatch.
        """


class _MessageReader(PipesS3MessageReader):
    """A reader of a job's messages from its folder on S3.

    It also reads the messages of a job that failed.
    """

    def __init__(self, bucket: str, prefix: str, client: Any, interval: float) -> None:
        super().__init__(interval=interval, bucket=bucket, client=client)
        self._prefix = prefix
        self._handler: PipesMessageHandler | None = None

    @property
    def expected_writer_count(self) -> int:
        """The number of processes that send messages."""
        # Without this property, Dagster logs a warning in each run.
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

    def answer(self) -> JobAnswer | None:
        """Return the answer of the job; None if it has sent none."""
        messages = self._handler.get_custom_messages() if self._handler else ()
        return next((answer for answer in map(JobAnswer.from_message, messages) if answer is not None), None)


def tag_value(text: str) -> str:
    """Convert a text, such as a partition key, to a valid tag value of AWS.

    Each invalid character becomes `_`, and only the first 256 characters are used.
    """
    return _INVALID_TAG_CHARACTERS.sub("_", text)[:256]


def _job_error(client: _JobClient, reader: _MessageReader, settings: EmrServerlessConfig, table: str) -> MetastoreError:
    """Return the error about a failed job: the one in its answer.

    If the job has sent no error, the message has the state of the job and details, which are requested from EMR.
    """
    job = (
        f"job {client.job} of EMR Serverless application {settings.application}; {_log_location(settings, client.job)}"
    )
    answer = reader.answer()
    if answer is not None and answer.version is None:
        return answer.to_error(job)
    state, details = client.state(settings.application)
    outcome = "was cancelled" if state.startswith("CANCEL") else "failed without an answer"
    if answer is not None:
        outcome = f"published version {answer.version}, but its job ended as {state} afterwards"
    return MetastoreError(f"table {table!r}: the refresh {outcome}{f': {details}' if details else ''} ({job})")


def _log_location(settings: EmrServerlessConfig, job: str) -> str:
    if not settings.logs:
        return "see the driver's log in the application's log location or console"
    folder = f"{settings.logs.rstrip('/')}/applications/{settings.application}/jobs/{job}"
    return f"see the driver's log {folder}/SPARK_DRIVER/stderr.gz"


def _dashboard_command(*, applicationId: str, jobRunId: str) -> str:
    command = "aws emr-serverless get-dashboard-for-job-run"
    return f"`{command} --application-id {applicationId} --job-run-id {jobRunId}`"


def _missing_answer(context: AssetExecutionContext, table: str, job: str) -> JobAnswer:
    """Log a warning that a successful job sent no answer, and return an empty answer."""
    context.log.warning("table %r: job %s succeeded, but its answer did not arrive", table, job)
    return JobAnswer()


def _driver_variables(settings: EmrServerlessConfig) -> set[str]:
    """Return the names of the environment variables that the configuration sets for the driver of a job."""
    return {name.removeprefix(_DRIVER_VARIABLE) for name in settings.spark if name.startswith(_DRIVER_VARIABLE)}


@contextmanager
def _folder(s3: Any, folder: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the bucket and the key prefix for a job's files.

    Delete these files at the end of the block.

    Args:
        s3: The S3 client of boto3.
        folder: The URI of the folder of all jobs.
        name: The name of the job's subfolder.
    """
    bucket, _, parent = folder.removeprefix("s3://").partition("/")
    prefix = f"{parent}/{name}" if parent else name
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
