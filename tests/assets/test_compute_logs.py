"""Logs of steps are stored on S3 by dagster-aws, with the settings in the documentation."""

import re
from pathlib import Path

import boto3
import pytest
import yaml
from dagster import DagsterInstance, Definitions, job, op
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster_aws.s3 import S3ComputeLogManager

from tests.conftest import REPOSITORY

SECRET = "a-secret-key"


@op
def print_a_line() -> None:
    print("read 7 files")  # noqa: T201


@job
def printing_job() -> None:
    print_a_line()


@pytest.mark.s3
def test_the_documented_settings_store_logs_on_s3(
    tmp_path: Path, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the documented settings, the output of a step is stored on S3 and can be read from there.

    The settings refer to environment variables, which also have the credentials. No file that Dagster stores locally
    has the secret key.
    """
    page = (REPOSITORY / "docs" / "how-to" / "dagster.md").read_text(encoding="utf-8")
    (documented_settings,) = re.findall(r"```\n(compute_logs:\n.*?)```", page, re.DOTALL)
    settings = yaml.safe_load(documented_settings)
    settings["compute_logs"]["config"] |= {"endpoint_url": s3_endpoint, "local_dir": str(tmp_path / "local")}
    environment = {"DAGSTER_LOGS_BUCKET": "logs", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": SECRET}
    for name, value in (environment | {"AWS_DEFAULT_REGION": "us-east-1"}).items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=s3_endpoint)
    client.create_bucket(Bucket="logs")
    (tmp_path / "home").mkdir()
    with DagsterInstance.local_temp(str(tmp_path / "home"), overrides=settings) as instance:
        manager = instance.compute_log_manager
        assert isinstance(manager, S3ComputeLogManager)
        result = Definitions(jobs=[printing_job]).resolve_job_def("printing_job").execute_in_process(instance=instance)
        (capture_event,) = [event for event in result.all_events if event.event_type_value == "LOGS_CAPTURED"]
        log_key = [result.run_id, "compute_logs", capture_event.logs_captured_data.file_key]
        output = manager.get_log_data_for_type(log_key, ComputeIOType.STDOUT, 0, None)
        assert b"read 7 files" in (output[0] if isinstance(output, tuple) else output)
        keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="logs")["Contents"]]
        assert all(key.startswith("dagster/storage/") for key in keys), keys
    stored_files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [data for data in stored_files if SECRET.encode() in data]
