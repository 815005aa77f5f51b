"""Drivers in processes of their own, and places that are full or cannot be written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.robustness.processes import Drivers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def drivers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Drivers:
    """Starts drivers that share this process's Spark. One folder for all: workers are kept by their environment."""
    return Drivers(tmp_path_factory.mktemp("steps"), spark)
