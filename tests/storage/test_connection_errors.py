"""The error of a request that never reaches an object store explains the cause."""

from __future__ import annotations

import socket

import pytest
from obstore.store import S3Store

from metastore_assets.storage.object_store import object_errors


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def error_of(store: S3Store) -> str:
    with pytest.raises(OSError, match=r"^s3://lake/t: ") as caught, object_errors("s3://lake/t"):
        store.list("t").collect()
    return str(caught.value)


NO_RETRY = {"max_retries": 0}
KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1"}


def test_missing_credentials(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that no credentials were found if the client cannot get any.

    Without credentials in the options, the client requests them from the metadata service of a cloud machine. The
    service cannot be reached here.
    """
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    options = {"aws_region": "us-east-1", "aws_metadata_endpoint": f"http://127.0.0.1:{closed_port}"}
    text = error_of(S3Store("lake", config=options, retry_config=NO_RETRY))
    assert "no credentials found; set them in storage_options" in text


def test_an_endpoint_that_cannot_be_reached(closed_port: int) -> None:
    options = KEYS | {"aws_endpoint": f"http://127.0.0.1:{closed_port}"}
    text = error_of(S3Store("lake", config=options, client_options={"allow_http": True}, retry_config=NO_RETRY))
    assert "the endpoint cannot be reached" in text
    assert text.endswith("check aws_endpoint")


def test_an_endpoint_of_plain_http(closed_port: int) -> None:
    options = KEYS | {"aws_endpoint": f"http://127.0.0.1:{closed_port}"}
    assert 'add `aws_allow_http: "true"`' in error_of(S3Store("lake", config=options, retry_config=NO_RETRY))
