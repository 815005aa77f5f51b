"""The program of an EMR Serverless job, which refreshes one table.

Dagster Pipes transports request and answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from metastore_assets.emr.request import REQUEST, JobAnswer, JobRequest, package_version
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.messages import remember_secret, remove_secrets
from metastore_assets.pipeline.hidden_values import KEY_VARIABLE
from metastore_assets.pipeline.outcome import format_result, log_progress
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_submitted_session


def main() -> None:
    """Execute the request of the job, and send the answer.

    If the refresh failed, exit with status 1.
    """
    import boto3
    from dagster_pipes import PipesS3ContextLoader, PipesS3MessageWriter, open_dagster_pipes

    region = os.environ.get("AWS_REGION")  # boto3 reads AWS_DEFAULT_REGION.
    if region:
        os.environ.setdefault("AWS_DEFAULT_REGION", region)
    client = boto3.client("s3")
    writer = PipesS3MessageWriter(client, interval=1)
    with open_dagster_pipes(context_loader=PipesS3ContextLoader(client), message_writer=writer) as pipes:
        try:
            answer = _refresh(JobRequest.from_json(pipes.get_extra(REQUEST)), pipes.log.info)
        except Exception as error:  # noqa: BLE001 (the answer reports every error to the run)
            import traceback

            sys.stderr.write(remove_secrets(traceback.format_exc()))
            answer = _error_answer(error)
        pipes.report_custom_message(answer.to_message())
    if answer.version is None:
        raise SystemExit(1)


def _refresh(request: JobRequest, log: Callable[[str], object]) -> JobAnswer:
    """Refresh the table of a request, after setting environment variables to the requested secrets.

    Raises ConfigError if this package has another version than the request, or if a secret, a variable, or the key for
    hashes of hidden values is missing. The errors of `refresh` are raised, too.

    Args:
        request: The request.
        log: Receives messages about the progress.
    """
    if request.version != package_version():
        raise ConfigError(
            f"table {request.table!r}: the job's environment has metastore-assets {package_version()}, but Dagster has "
            f"{request.version}: rebuild the archive of the environment with Dagster's version"
        )
    os.environ.update(_read_secrets(request.secrets))
    config, table = request.load_config()
    if request.needs_key and not os.environ.get(KEY_VARIABLE) and config.hidden_key is None:
        raise ConfigError(
            f"table {request.table!r}: Dagster has the key of hidden values in ${KEY_VARIABLE}, and the job does not: "
            f"name a secret for {KEY_VARIABLE} under `emr_serverless.secrets`"
        )
    result = refresh(
        config,
        table,
        get_submitted_session,
        RefreshRequest(request.full, tuple(request.partitions)),
        progress=log_progress(log),
    )
    log(format_result(result))
    return JobAnswer(result.version, result.seconds)


def _read_secrets(secrets: Mapping[str, str]) -> dict[str, str]:
    """Read secrets from AWS Secrets Manager.

    Args:
        secrets: The name of each secret, by environment variable.

    Returns:
        The value of each secret, by environment variable.

    Raises:
        ConfigError: A secret cannot be read.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    if not secrets:
        return {}
    client, values = boto3.client("secretsmanager"), {}
    for variable, secret in secrets.items():
        try:
            values[variable] = str(client.get_secret_value(SecretId=secret)["SecretString"])
        except (BotoCoreError, ClientError, KeyError) as error:
            reason = "it is not a text" if isinstance(error, KeyError) else str(error)
            raise ConfigError(
                f"emr_serverless.secrets.{variable}: the secret {secret!r} cannot be read: {reason}"
            ) from None
        remember_secret(values[variable], f"${{{variable}}}")
    return values


def _error_answer(error: Exception) -> JobAnswer:
    if isinstance(error, MetastoreError):
        return JobAnswer(kind=type(error).__name__, message=str(error))
    return JobAnswer(kind="MetastoreError", message=remove_secrets(f"{type(error).__name__}: {error}"))
