"""Fixtures: a root with tables, and a Spark session."""

from __future__ import annotations

from tests.cli.conftest import _published, published

__all__ = ["_published", "published"]
