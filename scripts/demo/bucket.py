"""The demo's lakehouse in S3: a local server, a bucket with copies of the local tables, and a secret key."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import yaml

from metastore_assets.config import CONFIG_VARIABLE, config_path
from scripts.s3_server import s3_server

_BUCKET = "lakehouse"
_REGION = "us-east-1"
_ENDPOINT, _ID, _SECRET = "DEMO_S3_ENDPOINT", "DEMO_S3_KEY_ID", "DEMO_S3_SECRET"
"""Names of environment variables that the configuration refers to."""


class Bucket:
    """A bucket that has the same files as a local folder after each `follow`."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self._folder = folder
        self._there: dict[str, tuple[int, int]] = {}
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=_REGION,
            aws_access_key_id=os.environ[_ID],
            aws_secret_access_key=os.environ[_SECRET],
        )
        self._client.create_bucket(Bucket=_BUCKET)

    def follow(self) -> None:
        """Upload new and changed files, and delete the objects of deleted files. Delta logs follow their data files."""
        files = {str(path.relative_to(self._folder)): path for path in self._folder.rglob("*") if path.is_file()}
        now = {key: (path.stat().st_size, path.stat().st_mtime_ns) for key, path in files.items()}
        for key in sorted(now, key=lambda key: ("_delta_log" in key, key)):
            if self._there.get(key) != now[key]:
                self._client.put_object(Bucket=_BUCKET, Key=f"lake/{key}", Body=files[key].read_bytes())
        for key in self._there.keys() - now.keys():
            self._client.delete_object(Bucket=_BUCKET, Key=f"lake/{key}")
        self._there = now

    def find_secret(self, folder: Path) -> tuple[int, list[str]]:
        """Search all objects of the bucket and all files in a folder for the secret key.

        Returns:
            The number of objects and files, and the names of those that contain it.
        """
        secret = os.environ[_SECRET].encode()
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        files = [path for path in folder.rglob("*") if path.is_file()]
        found = [key for key in keys if secret in self._client.get_object(Bucket=_BUCKET, Key=key)["Body"].read()]
        return len(keys) + len(files), found + [str(path) for path in files if secret in path.read_bytes()]


@contextmanager
def demo_bucket(folder: Path) -> Iterator[Bucket]:
    """Start a server with a bucket for copies of the tables in `folder`/lake, and stop it after the block.

    METASTORE_CONFIG of this process is set to a new configuration, whose tables and root are in the bucket.
    """
    with s3_server() as endpoint:
        os.environ |= {_ENDPOINT: endpoint, _ID: "demo", _SECRET: secrets.token_urlsafe(32)}
        folder.mkdir(parents=True)
        given = yaml.safe_load(config_path().read_text(encoding="utf-8"))
        access = {
            "aws_endpoint": f"${{{_ENDPOINT}}}",
            "aws_allow_http": "true",
            "aws_region": _REGION,
            "aws_access_key_id": f"${{{_ID}}}",
            "aws_secret_access_key": f"${{{_SECRET}}}",
        }
        tables = [
            {**table, "uri": f"s3://{_BUCKET}/lake/{table['name']}", "storage_options": access}
            for table in given["tables"]
        ]
        there = {**given, "root": f"s3://{_BUCKET}/metastore", "storage_options": access, "tables": tables}
        (folder / "metastore.yaml").write_text(yaml.safe_dump(there, sort_keys=False), encoding="utf-8")
        os.environ[CONFIG_VARIABLE] = str(folder / "metastore.yaml")
        yield Bucket(folder / "lake", endpoint)
