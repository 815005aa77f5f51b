"""Fixtures: a root with a published table, as in the tests of commands."""

from __future__ import annotations

from tests.cli.conftest import _published_folder, config_file

__all__ = ["_published_folder", "config_file"]
