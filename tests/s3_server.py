"""An S3 server on the loopback interface, in a process of its own, with a bucket named `metastore`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import boto3

# S3 decides a conditional put at one moment; moto looks first and stores then, so its requests go one at a time.
_SERVER = """
import sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
application, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()
def one_at_a_time(environ, start_response):
    with turn:
        return list(application(environ, start_response))
server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """Its endpoint, while it runs."""
    command = [sys.executable, "-W", "ignore", "-c", _SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()
        server.wait(timeout=30)


def bucket_options(endpoint: str) -> dict[str, str]:
    """Storage options of the server, after a bucket named `metastore` was made on it."""
    options = {"aws_access_key_id": "key", "aws_secret_access_key": "not-a-secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **options).create_bucket(Bucket="metastore")
    return {
        "aws_endpoint": endpoint,
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "not-a-secret",
    }
