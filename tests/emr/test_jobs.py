"""Dagster runs whose refreshes are EMR Serverless jobs.

The client and the job are real, with moto between them.

A version is the published statistics of a table at one snapshot.
"""

import gzip
import json
import os
import signal
import threading
import time
from pathlib import Path

import boto3
import pytest
from dagster import AssetKey, DagsterInstance, Failure
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster_aws.s3 import S3Resource

from metastore_assets import build_metastore_definitions
from tests.assets.user_project import STATISTICS, commit, materialize, reported_row_counts
from tests.emr.emr_server import ROLE
from tests.emr.emr_setup import OF_THIS_PROCESS, EmrSetup, logged

pytestmark = pytest.mark.s3


def test_a_commit_is_published_by_one_job(cloud: EmrSetup, instance: DagsterInstance, tmp_path: Path) -> None:
    """A run after a commit starts one job, which publishes the version with the credentials of its role.

    No credentials are stored. The job's log lines are in the log of the run. A run of the unchanged table starts no
    job.
    """
    definitions = build_metastore_definitions(cloud.config(engine="auto", tags={"team": "data"}))
    result = commit(definitions, instance)
    assert result is not None
    assert reported_row_counts(instance, result, STATISTICS) == {None: 6}
    (job,) = cloud.jobs()
    assert (job["state"], job["name"], job["tags"]["team"]) == ("SUCCESS", "metastore-sales", "data")
    assert job["tags"]["dagster/run-id"] == result.run_id
    assert cloud.published().version.number == 1
    text = logged(instance, result)
    assert "\nprofile: 0 of 2 fragments\n" in text
    assert "\nversion 1 of snapshot 0: 2 fragments added" in text
    assert not cloud.keys("metastore/emr-serverless.jobs"), "the job's request was removed"
    stored_files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for secret in (OF_THIS_PROCESS["AWS_SECRET_ACCESS_KEY"], ROLE["AWS_SECRET_ACCESS_KEY"]):
        assert not [data for data in (*stored_files, json.dumps(job, default=str).encode()) if secret.encode() in data]

    again = definitions.resolve_job_def("sales_refresh").execute_in_process(instance=instance)
    assert again.success
    assert len(cloud.jobs()) == 1, "an unchanged table starts no job"


@pytest.mark.long
def test_selected_partitions_are_read_by_the_job(
    cloud: EmrSetup, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of selected partitions starts a job that profiles these partitions again.

    Only an `S3Resource` gives the run credentials for S3.
    """
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3_resource = S3Resource(
        endpoint_url=cloud.endpoint,
        region_name="eu-central-1",
        aws_access_key_id="here",
        aws_secret_access_key="of-the-resource",
    )
    definitions = build_metastore_definitions(cloud.config(engine="auto"), s3=s3_resource)
    job = definitions.resolve_job_def("sales_refresh")
    options = {"ops": {"sales_profile": {"config": {"partitions": ["day=2024-01-02"]}}}}
    assert job.execute_in_process(instance=instance).success
    result = job.execute_in_process(instance=instance, run_config=options)
    assert result.success
    version = cloud.published().version
    assert (version.number, version.refresh_stats and version.refresh_stats.fragments) == (2, 1)

    again = build_metastore_definitions(cloud.config(engine="auto"), s3=s3_resource)
    result = materialize(again, instance, AssetKey(["sales", "sales_partitions"]), partition="day=2024-01-01")
    assert reported_row_counts(instance, result, AssetKey(["sales", "sales_partitions"])) == {"day=2024-01-01": 3}
    version = cloud.published().version
    assert (version.number, version.refresh_stats and version.refresh_stats.fragments) == (3, 1)
    assert cloud.jobs()[-1]["tags"]["dagster/partition"] == "day=2024-01-01"


@pytest.mark.long
def test_an_error_of_the_job_fails_the_run(cloud: EmrSetup, instance: DagsterInstance) -> None:
    """If the job fails, the run fails with the job's error and the location of the job's log.

    No version is published, and the request for the job is removed.
    """
    job = build_metastore_definitions(cloud.config(engine="auto")).resolve_job_def("sales_refresh")
    for key in [key for key in cloud.keys("sales/") if key.endswith(".parquet")][:1]:
        cloud.s3.put_object(Bucket="lake", Key=f"{cloud.folder}/{key}", Body=b"no Parquet file")
    with pytest.raises(Failure, match=r"sales/day=2024-01-01/") as error_info:
        job.execute_in_process(instance=instance)
    (ended_job,) = cloud.jobs()
    assert ended_job["state"] == "FAILED"
    assert error_info.value.metadata["error"].value == "ProfileError"
    message = error_info.value.description or ""
    log = f"{cloud.folder}/logs/applications/{cloud.application}/jobs/{ended_job['jobRunId']}/SPARK_DRIVER/stderr.gz"
    assert f"job {ended_job['jobRunId']} of EMR Serverless application {cloud.application}" in message
    assert f"s3://lake/{log}" in message
    log_text = gzip.decompress(cloud.s3.get_object(Bucket="lake", Key=log)["Body"].read()).decode()
    assert "ProfileError" in log_text
    assert not cloud.keys("metastore/sales/versions")
    assert not cloud.keys("metastore/emr-serverless.jobs")


@pytest.mark.long
def test_a_job_without_output_fails_the_run(
    cloud: EmrSetup, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the job ends before it sends a result, the run fails with EMR's message."""
    monkeypatch.setattr("dagster._core.pipes.utils.WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL", 0)
    config = cloud.config(environment="s3://lake/none.tar.gz")
    job = build_metastore_definitions(config).resolve_job_def("sales_refresh")
    with pytest.raises(Failure, match="ExitCode: 1"):
        job.execute_in_process(instance=instance)


def test_a_cancelled_run_cancels_its_job(
    cloud: EmrSetup, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster._core.pipes.utils.WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL", 0)
    job = build_metastore_definitions(cloud.config()).resolve_job_def("sales_refresh")

    def interrupt() -> None:
        while not [s3_resource for s3_resource in cloud.jobs() if s3_resource["state"] == "RUNNING"]:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    watching = threading.Thread(target=interrupt)
    watching.start()
    with pytest.raises((DagsterExecutionInterruptedError, KeyboardInterrupt)):
        job.execute_in_process(instance=instance)
    watching.join()
    assert [s3_resource["state"] for s3_resource in cloud.jobs()] == ["CANCELLED"]
    assert not cloud.keys("metastore/sales/versions")


@pytest.mark.long
def test_an_error_of_aws_fails_the_run(cloud: EmrSetup, instance: DagsterInstance) -> None:
    """If the EMR application does not exist, the run fails with the application's id and AWS's error."""
    config = cloud.config(application="00none")
    job = build_metastore_definitions(config).resolve_job_def("sales_refresh")
    with pytest.raises(Failure, match=r"'sales'.*00none.*ResourceNotFound"):
        job.execute_in_process(instance=instance)
    assert not cloud.keys("metastore/emr-serverless.jobs")


@pytest.mark.long
def test_the_job_resolves_secrets(cloud: EmrSetup, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job reads the secrets from AWS Secrets Manager.

    If the configuration names no secret for a variable, the run fails before the launch. If AWS does not have the named
    secret, the job fails.
    """
    hidden_columns = {"columns": {"amount": {"values": "hidden"}}}
    monkeypatch.setenv("METASTORE_HIDDEN_KEY", "k" * 40)
    without = build_metastore_definitions(cloud.config(hidden_columns, engine="auto")).resolve_job_def("sales_refresh")
    with pytest.raises(Failure, match="METASTORE_HIDDEN_KEY"):
        without.execute_in_process(instance=instance)

    secrets = {"METASTORE_HIDDEN_KEY": "metastore/hidden-key"}
    config = cloud.config(hidden_columns, engine="auto", secrets=secrets)
    job = build_metastore_definitions(config).resolve_job_def("sales_refresh")
    with pytest.raises(Failure, match=r"secrets\.METASTORE_HIDDEN_KEY.*'metastore/hidden-key'"):
        job.execute_in_process(instance=instance)
    boto3.client("secretsmanager").create_secret(Name="metastore/hidden-key", SecretString="k" * 40)
    assert job.execute_in_process(instance=instance).success
    launch_count = len(cloud.jobs())
    assert job.execute_in_process(instance=instance).success
    assert len(cloud.jobs()) == launch_count, "both use the same key, so nothing has changed"
