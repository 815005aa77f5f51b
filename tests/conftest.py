"""Fixtures that several rooms share, and the Hypothesis profiles."""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # frames of a few rows gain nothing from threads, but wait for them

import boto3
import pytest
from hypothesis import settings

from scripts.s3_server import s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[1]

# Time limits per example are off: the machine may be busy with other tests, or with a Spark session that starts.
settings.register_profile("default", deadline=None, max_examples=25)
# Continuous integration draws the same examples each time: a failure there is one that the commit made.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("long", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


LONG_FILES = {"test_docs.py", "test_examples.py", "test_processes.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long and would be begun last comes first: else one process has work at the end, the others none."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting leaves, a million objects that all stay, the garbage collector never walks; and then it walks
    what tests leave less often."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_unconfigure() -> None:
    """What is not walked at the end either is not ended: libraries would print what they miss."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What tests write need not survive a power cut: Dagster's databases would wait for each of their events.

    Processes that tests start wait for it as they do for users.
    """

    def without_waiting(connection: Any, record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    engines = sys.modules.get("sqlalchemy")
    if engines is not None:
        engines.event.listen(engines.engine.Engine, "connect", without_waiting)
    with patch.object(os, "fsync", lambda descriptor: None):
        yield
    if engines is not None:
        engines.event.remove(engines.engine.Engine, "connect", without_waiting)


@pytest.fixture(scope="session", autouse=True)
def _migrations_are_read_once() -> Iterator[None]:
    """Dagster has each of its databases, and one of them is made for each run, load a hundred modules of migrations."""
    if "alembic.script" not in sys.modules:
        yield
        return
    directories: Any = sys.modules["alembic.script"].ScriptDirectory
    from_config, read = directories.from_config, dict[str, Any]()

    def once(config: Any) -> Any:
        place = config.get_main_option("script_location")
        if place not in read:
            read[place] = from_config(config)
        return read[place]

    with patch.object(directories, "from_config", once):
        yield


@pytest.fixture(scope="session")
def realtables() -> Path:
    """The folder of real tables beside the repository; skips where there is none."""
    folder = REPOSITORY.parent / "shared" / "realtables"
    if not (folder / "manifest.json").exists():
        pytest.skip("the real tables are not there: ../shared/realtables")
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session with two workers for all tests of a process."""
    from metastore_assets.spark.session import get_spark_session

    with pytest.MonkeyPatch.context() as patched:
        # Workers import functions of tests, and nothing from the working folder.
        patched.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        session = get_spark_session({"spark.master": "local[2]", "spark.driver.memory": "1g"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The endpoint of an S3 server on the loopback interface: one for all tests of a process."""
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def s3_options(s3_endpoint: str) -> dict[str, str]:
    """Storage options of the server, with a bucket named `metastore` on it."""
    options = {"aws_access_key_id": "key", "aws_secret_access_key": "not-a-secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=s3_endpoint, **options).create_bucket(Bucket="metastore")
    return {
        "aws_endpoint": s3_endpoint,
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "not-a-secret",
    }
