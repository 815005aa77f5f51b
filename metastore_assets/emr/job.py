"""The program of an EMR Serverless job: one refresh, with request and answer through Dagster Pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from metastore_assets.emr.request import REQUEST, Answer, Request, package_version
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.messages import remember_secret, remove_secrets
from metastore_assets.pipeline.hidden_values import KEY_VARIABLE
from metastore_assets.pipeline.outcome import format_result, log_progress
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.spark.session import get_submitted_session


def main() -> None:
    """Execute the request. Exit with status 1 after reporting an error."""
    import boto3
    from dagster_pipes import PipesS3ContextLoader, PipesS3MessageWriter, open_dagster_pipes

    region = os.environ.get("AWS_REGION")  # which boto3 calls otherwise
    if region:
        os.environ.setdefault("AWS_DEFAULT_REGION", region)
    client = boto3.client("s3")
    writer = PipesS3MessageWriter(client, interval=1)
    with open_dagster_pipes(context_loader=PipesS3ContextLoader(client), message_writer=writer) as pipes:
        try:
            answer = _refresh(Request.of(pipes.get_extra(REQUEST)), pipes.log.info)
        except Exception as error:  # noqa: BLE001 (whatever it is, who launched the job is told)
            import traceback

            sys.stderr.write(remove_secrets(traceback.format_exc()))
            answer = _failed_answer(error)
        pipes.report_custom_message(answer.to_json())
    if answer.version is None:
        raise SystemExit(1)


def _refresh(request: Request, log: Callable[[str], object]) -> Answer:
    if request.version != package_version():
        raise ConfigError(
            f"table {request.table!r}: the job's environment has metastore-assets {package_version()}, and "
            f"Dagster has {request.version}: rebuild the archive of the environment with Dagster's version"
        )
    os.environ.update(_read_secrets(request.secrets))
    config, table = request.configured()
    if request.needs_key and not os.environ.get(KEY_VARIABLE) and config.hidden_key is None:
        raise ConfigError(
            f"table {request.table!r}: where the job was launched ${KEY_VARIABLE} is the key of hidden values, and the "
            f"job has none: say under `emr_serverless.secrets` which secret {KEY_VARIABLE} is"
        )
    result = refresh(
        config,
        table,
        get_submitted_session,
        RefreshRequest(request.full, tuple(request.partitions)),
        progress=log_progress(log),
    )
    log(format_result(result))
    return Answer(result.version, result.seconds)


def _read_secrets(secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the values of secrets by variable. Raise ConfigError if one cannot be read."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    if not secrets:
        return {}
    client, values = boto3.client("secretsmanager"), {}
    for variable, secret in secrets.items():
        try:
            values[variable] = str(client.get_secret_value(SecretId=secret)["SecretString"])
        except (BotoCoreError, ClientError, KeyError) as error:
            said = "it is no text" if isinstance(error, KeyError) else str(error)
            raise ConfigError(
                f"emr_serverless.secrets.{variable}: the secret {secret!r} is not to be had: {said}"
            ) from None
        remember_secret(values[variable], f"${{{variable}}}")
    return values


def _failed_answer(error: Exception) -> Answer:
    if isinstance(error, MetastoreError):
        return Answer(kind=type(error).__name__, message=str(error))
    return Answer(kind="MetastoreError", message=remove_secrets(f"{type(error).__name__}: {error}"))
