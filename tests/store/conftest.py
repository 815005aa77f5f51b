"""Roots to test against: a local folder and, in a process of its own, an S3 server."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from metastore_assets.store.objects import ObjectStore

_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The endpoint of an S3 server on the loopback interface."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        lines = iter(server.stdout.readline, "")
        port = next(line for line in lines if line.strip().isdigit()).strip()
        yield f"http://127.0.0.1:{port}"
        server.stdin.close()
        server.wait(timeout=30)


@pytest.fixture(scope="session")
def s3_options(s3_endpoint: str) -> dict[str, str]:
    """Storage options of the server, with a bucket named `metastore` on it."""
    options = {"aws_access_key_id": "key", "aws_secret_access_key": "not-a-secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=s3_endpoint, **options).create_bucket(Bucket="metastore")
    return {
        "aws_endpoint": s3_endpoint,
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "not-a-secret",
    }


@pytest.fixture
def s3_store(s3_options: dict[str, str]) -> ObjectStore:
    """An empty root in a bucket."""
    return ObjectStore(f"s3://metastore/{uuid.uuid4().hex}", s3_options)


@pytest.fixture
def local_store(tmp_path: Path) -> ObjectStore:
    """An empty local root, whose folder does not exist yet."""
    return ObjectStore(str(tmp_path / "a root"))


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """An empty root of each kind: what holds for one must hold for the other."""
    return request.getfixturevalue(f"{request.param}_store")
