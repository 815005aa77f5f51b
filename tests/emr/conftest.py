"""AWS on the loopback address, whose jobs are done by Python alone, and a Dagster instance."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance

from tests.emr.cloud import Cloud, cloud_played, own_folder


@pytest.fixture(scope="module")
def aws() -> Iterator[Cloud]:
    with cloud_played("python") as cloud:
        yield cloud


@pytest.fixture
def cloud(aws: Cloud) -> Cloud:
    return own_folder(aws)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    (tmp_path / "home").mkdir()
    with DagsterInstance.local_temp(str(tmp_path / "home")) as made:
        yield made
