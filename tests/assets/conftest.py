"""Fixtures: a Dagster test project for each test, and a Dagster instance in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance

from tests.assets.lab import Lab, lab_in


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Two tables with three partitions each, and a Dagster instance that has not seen them."""
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    with lab_in(tmp_path) as new_lab:
        yield new_lab


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    """An in-memory Dagster instance, for loading definitions and for runs in this process."""
    with DagsterInstance.ephemeral() as new_instance:
        yield new_instance
