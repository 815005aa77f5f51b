"""A simulated AWS whose jobs run in Python alone, and a Dagster instance."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance

from tests.assets.lab import NO_COMPUTE_LOGS
from tests.emr.emr_setup import EmrSetup, start_emr, with_new_folder


@pytest.fixture(scope="module")
def aws() -> Iterator[EmrSetup]:
    with start_emr("python") as cloud:
        yield cloud


@pytest.fixture
def cloud(aws: EmrSetup) -> EmrSetup:
    return with_new_folder(aws)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    (tmp_path / "home").mkdir()
    with DagsterInstance.local_temp(
        str(tmp_path / "home"), overrides={"compute_logs": NO_COMPUTE_LOGS}
    ) as new_instance:
        yield new_instance
