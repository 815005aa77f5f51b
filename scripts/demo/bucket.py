"""The demo's lakehouse in S3: a server on loopback, with a bucket that mirrors the local tables."""

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
"""Environment variables that the configuration references."""


class Bucket:
    """A bucket with the files of a local folder, as of the last `synchronize`."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self._folder = folder
        self._uploaded: dict[str, tuple[int, int]] = {}
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=_REGION,
            aws_access_key_id=os.environ[_ID],
            aws_secret_access_key=os.environ[_SECRET],
        )
        self._client.create_bucket(Bucket=_BUCKET)

    def synchronize(self) -> None:
        """Upload new and changed files, logs of commits last, and delete the objects of deleted files."""
        files = {str(path.relative_to(self._folder)): path for path in self._folder.rglob("*") if path.is_file()}
        current = {key: (path.stat().st_size, path.stat().st_mtime_ns) for key, path in files.items()}
        for key in sorted(current, key=lambda key: ("_delta_log" in key, key)):
            if self._uploaded.get(key) != current[key]:
                self._client.put_object(Bucket=_BUCKET, Key=f"lake/{key}", Body=files[key].read_bytes())
        for key in self._uploaded.keys() - current.keys():
            self._client.delete_object(Bucket=_BUCKET, Key=f"lake/{key}")
        self._uploaded = current

    def find_secret(self, folder: Path) -> tuple[int, list[str]]:
        """Search all objects, and the files below a folder, for the secret key.

        Returns (number of searched objects and files, names of those that contain the key).
        """
        secret = os.environ[_SECRET].encode()
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        files = [path for path in folder.rglob("*") if path.is_file()]
        leaks = [key for key in keys if secret in self._client.get_object(Bucket=_BUCKET, Key=key)["Body"].read()]
        return len(keys) + len(files), leaks + [str(path) for path in files if secret in path.read_bytes()]


@contextmanager
def demo_bucket(folder: Path) -> Iterator[Bucket]:
    """Start an S3 server, and set $METASTORE_CONFIG to a new configuration with the tables in its bucket.

    Yield the bucket, which is empty until its first `synchronize`. The server stops after the block.

    Args:
        folder: The new folder of the demo. Its folder `lake` is mirrored.
    """
    with s3_server() as endpoint:
        os.environ |= {_ENDPOINT: endpoint, _ID: "demo", _SECRET: secrets.token_urlsafe(32)}
        folder.mkdir(parents=True)
        local = yaml.safe_load(config_path().read_text(encoding="utf-8"))
        access = {
            "aws_endpoint": f"${{{_ENDPOINT}}}",
            "aws_allow_http": "true",
            "aws_region": _REGION,
            "aws_access_key_id": f"${{{_ID}}}",
            "aws_secret_access_key": f"${{{_SECRET}}}",
        }
        tables = [
            {**table, "uri": f"s3://{_BUCKET}/lake/{table['name']}", "storage_options": access}
            for table in local["tables"]
        ]
        config = {**local, "root": f"s3://{_BUCKET}/metastore", "storage_options": access, "tables": tables}
        (folder / "metastore.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        os.environ[CONFIG_VARIABLE] = str(folder / "metastore.yaml")
        yield Bucket(folder / "lake", endpoint)
