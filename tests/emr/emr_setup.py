"""A bucket with a table, an EMR Serverless application, and a configuration for both."""

import io
import sys
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

import boto3
import pyarrow as pa
import pytest
from dagster import DagsterInstance, ExecuteInProcessResult
from deltalake import write_deltalake

from metastore_assets import MetastoreConfig, TableConfig
from metastore_assets.config import EmrServerlessConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import Metastore
from tests.conftest import REPOSITORY
from tests.emr.emr_server import emr_server

OF_THIS_PROCESS = {
    "AWS_ACCESS_KEY_ID": "here",
    "AWS_SECRET_ACCESS_KEY": "of-this-process-alone",
    "AWS_DEFAULT_REGION": "eu-central-1",
}


@dataclass(frozen=True)
class EmrSetup:
    """A folder in the bucket `lake` of a simulated AWS, an application for jobs, and boto3's clients.

    Each test has another folder.
    """

    endpoint: str
    application: str
    folder: str
    s3: Any
    emr: Any

    @property
    def options(self) -> dict[str, str]:
        return {"aws_endpoint": self.endpoint, "aws_allow_http": "true", "aws_region": "eu-central-1"}

    def write(self, *days: int, mode: Any = "append") -> None:
        """Make one commit, with three rows for each of the days."""
        dates = [date(2024, 1, day) for day in days for _ in range(3)]
        rows = pa.table({"day": dates, "amount": [1, 2, 2] * len(days)})
        options = {"endpoint_url": self.endpoint, "allow_http": "true"}
        base_uri = f"s3://lake/{self.folder}/sales"
        write_deltalake(base_uri, rows, mode=mode, partition_by=["day"], storage_options=options)

    def config(self, table: dict[str, Any] | None = None, **settings: Any) -> MetastoreConfig:
        table_settings = {
            "application": self.application,
            "execution_role": "arn:aws:iam::123456789012:role/metastore",
            "environment": "s3://lake/environment.tar.gz",
            "logs": f"s3://lake/{self.folder}/logs/",
            "interval": 0.3,
            **settings,
        }
        base_uri = f"s3://lake/{self.folder}"
        setup = TableConfig(name="sales", uri=f"{base_uri}/sales", storage_options=self.options, **(table or {}))
        return MetastoreConfig(
            root=f"{base_uri}/metastore",
            storage_options=self.options,
            engine="emr-serverless",
            emr_serverless=EmrServerlessConfig(**table_settings),
            tables=[setup],
        )

    def published(self) -> Table:
        access = {"aws_access_key_id": "looks", "aws_secret_access_key": "of-who-looks"}
        return Metastore(f"s3://lake/{self.folder}/metastore", storage_options={**self.options, **access}).table(
            "sales"
        )

    def jobs(self) -> list[Any]:
        """Return this test's jobs, in the order of their launch."""
        runs = self.emr.list_job_runs(applicationId=self.application).get("jobRuns", ())
        jobs = [self.emr.get_job_run(applicationId=self.application, jobRunId=one["id"])["jobRun"] for one in runs]
        return [job for job in jobs if f"/{self.folder}/" in job["jobDriver"]["sparkSubmit"]["entryPoint"]]

    def keys(self, below: str) -> list[str]:
        listing = self.s3.list_objects_v2(Bucket="lake", Prefix=f"{self.folder}/{below}")
        return [entry["Key"].removeprefix(f"{self.folder}/") for entry in listing.get("Contents", ())]


@contextmanager
def start_emr(way: str) -> Iterator[EmrSetup]:
    """Start a simulated AWS for several tests.

    Each test calls `with_new_folder` to get a folder.
    """
    with pytest.MonkeyPatch.context() as patch, emr_server(way) as endpoint:
        for name, value in {**OF_THIS_PROCESS, "AWS_ENDPOINT_URL": endpoint}.items():
            patch.setenv(name, value)
        s3, emr = boto3.client("s3"), boto3.client("emr-serverless")
        s3.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        s3.put_object(Bucket="lake", Key="environment.tar.gz", Body=environment())
        application = emr.create_application(name="metastore", releaseLabel="emr-7.9.0", type="SPARK", clientToken="1")
        yield EmrSetup(endpoint, application["applicationId"], "", s3, emr)


def with_new_folder(cloud: EmrSetup) -> EmrSetup:
    """Return a setup with a new folder, in which a table of two days has been written."""
    setup = EmrSetup(cloud.endpoint, cloud.application, uuid.uuid4().hex, cloud.s3, cloud.emr)
    setup.write(1, 2)
    return setup


def environment() -> bytes:
    """Return an archive of an environment as EMR unpacks it, with this process's Python."""
    script = f'#!/bin/sh\nPYTHONPATH="{REPOSITORY}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'.encode()
    archive_bytes = io.BytesIO()
    with tarfile.open(fileobj=archive_bytes, mode="w:gz") as archive:
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(script), 0o755
        archive.addfile(entry, io.BytesIO(script))
    return archive_bytes.getvalue()


def logged(instance: DagsterInstance, result: ExecuteInProcessResult) -> str:
    """Return everything that a run logged."""
    return "\n".join(entry.user_message for entry in instance.all_logs(result.run_id))
