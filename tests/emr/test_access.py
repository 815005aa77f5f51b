"""S3 credentials from a container's metadata host are used."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from metastore_assets.storage.object_store import obstore_arguments
from metastore_assets.store.objects import ObjectStore

pytestmark = pytest.mark.s3
_EVERY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
    """The tokens of the requests to a simulated metadata host, which answers each with credentials.

    The variable `AWS_CONTAINER_CREDENTIALS_FULL_URI` has its address.
    """
    tokens: list[str | None] = []
    access = {"AccessKeyId": "k", "SecretAccessKey": "s", "Token": "t", "Expiration": "2999-01-01T00:00:00Z"}

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(access).encode())

        def log_message(self, *_: object) -> None:
            """Write no log."""

    for name in _EVERY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    with HTTPServer(("127.0.0.1", 0), Host) as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{server.server_port}/access")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tokens
        server.shutdown()


def test_credentials_are_requested(
    requests: list[str | None], s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object store requests credentials from the host, with the token of the environment variable.

    The library obstore alone would not send the token.
    """
    options = {name: value for name, value in s3_options.items() if "access_key" not in name}
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a token")
    store = ObjectStore("s3://metastore/of-a-container", options)
    store.write("x", b"1", create=False)
    assert store.read("x") == b"1"
    assert requests == ["a token"]


def test_explicit_settings_have_priority(
    requests: list[str | None], s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With credentials or a token file in options or environment, the metadata host is not requested."""
    assert "credential_provider" in obstore_arguments("s3", ())
    assert "credential_provider" not in obstore_arguments("gs", ())
    assert "credential_provider" not in obstore_arguments("s3", s3_options.items())
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "x")
            assert "credential_provider" not in obstore_arguments("s3", ())
    assert not requests[1:]
