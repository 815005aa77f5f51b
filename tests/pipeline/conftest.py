"""An S3 server for roots in a bucket: the one that the store is tested against."""

from __future__ import annotations

from tests.store.conftest import s3_endpoint, s3_options

__all__ = ["s3_endpoint", "s3_options"]
