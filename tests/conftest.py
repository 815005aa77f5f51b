"""Fixtures shared by all test folders, the Hypothesis profiles, and the list of slow files."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # threads do not speed up frames of a few rows, but must be waited for

import boto3
import pytest
from hypothesis import HealthCheck, settings

from scripts.s3_server import s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[1]

# No time limits: the machine may be busy with other tests, or with a starting Spark session.
settings.register_profile("default", deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
# Continuous integration draws the same examples each time, so a new failure is caused by the commit.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
# For development: few examples of each property, the same each time.
settings.register_profile("fast", settings.get_profile("ci"), max_examples=5)
settings.register_profile("long", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


_EXPENSIVE_FIXTURES = {
    "hive": r"\bhive: str\b|\(\"hive\"\)",
    "spark": r"\bspark: SparkSession\b|\bdrivers: Drivers\b|\(\"spark\"\)",
}
"""Session fixtures that take 5 to 10 s of CPU time in each process, and a pattern of the files that use each."""
_SQLITE_STORAGES = (
    "event_log.sqlite.sqlite_event_log",
    "runs.sqlite.sqlite_run_storage",
    "schedules.sqlite.sqlite_schedule_storage",
)
_OPEN_DATABASES = 20
"""Number of new databases of Dagster after which the idle connections to all of them are closed."""
LONG_FILES = {
    "assets/test_launch.py",
    "exports/test_hive_target.py",
    "store/test_processes.py",
    "test_docs.py",
    "test_examples.py",
}
"""Files that take longest, or that wait for other processes."""
SLOW_FILES = {
    "assets/test_checks.py",
    "assets/test_launch.py",
    "assets/test_outputs.py",
    "assets/test_partition_groups.py",
    "assets/test_project_partitions.py",
    "assets/test_resources.py",
    "assets/test_translator.py",
    "assets/test_worst_partitions.py",
    "checks/test_soundness.py",
    "cli/test_backfill.py",
    "cli/test_completion.py",
    "cli/test_exit_status.py",
    "cli/test_init.py",
    "cli/test_interrupt.py",
    "cli/test_past_versions.py",
    "cli/test_startup.py",
    "cli/test_startup_dataclasses.py",
    "cli/test_streams.py",
    "cli/test_terminal.py",
    "demo/test_commits.py",
    "demo/test_demo.py",
    "exports/test_dagster.py",
    "exports/test_framework.py",
    "exports/test_iceberg.py",
    "formats/delta/test_bounds.py",
    "formats/delta/test_log.py",
    "formats/files/test_bounds.py",
    "formats/files/test_csv_header.py",
    "formats/files/test_csv_lines.py",
    "formats/files/test_streaming_sink.py",
    "formats/files/test_streams.py",
    "formats/hudi/test_changes.py",
    "formats/hudi/test_histories.py",
    "formats/hudi/test_realtables.py",
    "formats/iceberg/test_bounds.py",
    "formats/iceberg/test_changes.py",
    "formats/iceberg/test_deletes.py",
    "formats/lance/test_table.py",
    "formats/readers/test_calendars.py",
    "formats/readers/test_int96.py",
    "formats/test_contract.py",
    "formats/test_metadata_cache.py",
    "formats/test_realtables.py",
    "formats/test_registration.py",
    "fuzz/test_fuzz_answers.py",
    "history/test_history.py",
    "index/test_fragment_index.py",
    "index/test_partition_index.py",
    "index/test_value_filters.py",
    "lookup/test_cost.py",
    "lookup/test_diff.py",
    "lookup/test_partition_tables.py",
    "lookup/test_pruning.py",
    "lookup/test_readers.py",
    "lookup/test_value_filters.py",
    "pipeline/test_backfill.py",
    "pipeline/test_compacted_value_counts.py",
    "pipeline/test_damaged_files.py",
    "pipeline/test_deletes.py",
    "pipeline/test_deltas.py",
    "pipeline/test_dropped_columns.py",
    "pipeline/test_engine.py",
    "pipeline/test_fingerprint_policies.py",
    "pipeline/test_fingerprint_shuffle.py",
    "pipeline/test_fingerprints.py",
    "pipeline/test_first_version.py",
    "pipeline/test_fragment_runs.py",
    "pipeline/test_hidden_outputs.py",
    "pipeline/test_metadata_cache.py",
    "pipeline/test_partition_conditions.py",
    "pipeline/test_profile_tree.py",
    "pipeline/test_shared_files.py",
    "pipeline/test_small_files.py",
    "pipeline/test_stages.py",
    "pipeline/test_user_defined.py",
    "pipeline/test_values.py",
    "produce/test_changed_declarations.py",
    "produce/test_executors.py",
    "produce/test_hooks.py",
    "produce/test_joins.py",
    "produce/test_kills.py",
    "produce/test_lookup.py",
    "produce/test_ports.py",
    "produce/test_property.py",
    "produce/test_publishers.py",
    "produce/test_ranks.py",
    "produce/test_signed_sums.py",
    "produce/test_storage.py",
    "produce/test_sums.py",
    "produce/test_updates.py",
    "produce/test_value_counts.py",
    "produce/test_versions.py",
    "reads/test_dataset.py",
    "reads/test_lazy.py",
    "reads/test_read.py",
    "reads/test_realtables.py",
    "report/test_report.py",
    "robustness/test_bombs.py",
    "robustness/test_crashing_files.py",
    "robustness/test_fingerprint_histories.py",
    "robustness/test_fuzz.py",
    "robustness/test_policy_histories.py",
    "robustness/test_uncertain_differences.py",
    "scan/test_filtered_view.py",
    "scan/test_filtered_view_realtables.py",
    "scan/test_filtered_view_user_defined.py",
    "scan/test_moved_timestamps.py",
    "scan/test_pruned_scan.py",
    "scan/test_realtables.py",
    "scan/test_table_location.py",
    "security/test_completion.py",
    "security/test_damaged_versions.py",
    "security/test_forged_versions.py",
    "security/test_hidden_errors.py",
    "security/test_hidden_nested.py",
    "security/test_hidden_values.py",
    "security/test_links.py",
    "security/test_purge_unpublished.py",
    "security/test_reader_memory.py",
    "security/test_redaction.py",
    "security/test_sql.py",
    "security/test_temporary_files.py",
    "security/test_working_folder.py",
    "sensors/test_commits.py",
    "sensors/test_outcomes.py",
    "spark/test_runner.py",
    "sql/test_sql.py",
    "sql/test_tables.py",
    "statistics/test_merge.py",
    "statistics/test_quantiles.py",
    "statistics/test_user_defined.py",
    "statistics/test_value_filter.py",
    "storage/test_io_counters.py",
    "store/test_entries.py",
    "store/test_entry_files.py",
    "store/test_garbage.py",
    "store/test_processes.py",
    "store/test_segment_histories.py",
    "store/test_segment_levels.py",
    "store/test_shared_files.py",
    "store/test_sorted_runs.py",
    "tasks/test_isolation.py",
    "tasks/test_streams.py",
    "test_benchmarks.py",
    "test_commit_cost.py",
    "test_definitions.py",
    "test_docs.py",
    "test_examples.py",
    "test_extras.py",
    "test_imports.py",
    "test_private_interfaces.py",
    "test_profiling.py",
    "test_public_names.py",
    "test_wheel.py",
}
"""Files that `make test-fast` skips: most take more than 1.5 s of processor time without Spark and servers."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import slow files if `make test-fast` deselects their tests."""
    is_slow = collection_path.relative_to(REPOSITORY / "tests").as_posix() in SLOW_FILES
    return True if is_slow and "not slow" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files, and run the files that take longest first.

    So no process waits for another at the end. Files with Spark come next and together, because Spark ends Python
    workers that have no task for a minute. Then come other slow files.
    """
    tests = REPOSITORY / "tests"
    names = {item.path: item.path.relative_to(tests).as_posix() for item in items}
    with_spark = {item.path for item in items if item.get_closest_marker("spark")}

    def order(item: pytest.Item) -> int:
        ranks = (names[item.path] in LONG_FILES, item.path in with_spark, names[item.path] in SLOW_FILES, True)
        return ranks.index(True)

    for item in items:
        if names[item.path] in SLOW_FILES:
            item.add_marker(pytest.mark.slow)
    items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, run all files that use one of the `_EXPENSIVE_FIXTURES` in one process.

    The exception is Spark, which runs in two processes: one for the files in `robustness`, which take about half of the
    time, and one for all other files with Spark. Files without expensive fixtures are distributed one by one.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _process_of(super()._split_scope(nodeid))

    return Scheduling(config, log)


@cache
def _process_of(file: str) -> str:
    """Return a text that is the same for all files of tests that must run in the same process."""
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    name = next((name for name, use in _EXPENSIVE_FIXTURES.items() if re.search(use, text)), None)
    if name == "spark" and file.startswith("tests/robustness/"):
        return "spark in robustness"
    return name or file


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the objects that exist after the collection of tests from garbage collection.

    There are about a million of them. The garbage collector also runs less often from then on.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let only one process at a time collect a module.

    The first process compiles the module and the modules that it imports. The other processes read the compiled files.
    """
    if not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open("rb") as module:
        fcntl.flock(module, fcntl.LOCK_EX)
        return (yield)


def pytest_unconfigure() -> None:
    """Let the garbage collector walk all objects again at exit.

    Otherwise, some libraries would print errors. Pytest runs ten collections before the exit, each of which would take
    0.15 s.
    """
    atexit.register(gc.unfreeze)


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Turn off disk syncs of `os.fsync` and of SQLAlchemy's SQLite databases in this process.

    Tests need not survive a power failure. Processes that tests start write to disk as they do for users.
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
    """Cache Alembic's migration scripts.

    Dagster creates a database for each run, and loads a hundred scripts for each database.
    """
    if "alembic.script" not in sys.modules:
        yield
        return
    directories: Any = sys.modules["alembic.script"].ScriptDirectory
    from_config, directories_by_location = directories.from_config, dict[str, Any]()

    def once(config: Any) -> Any:
        script_location = config.get_main_option("script_location")
        if script_location not in directories_by_location:
            directories_by_location[script_location] = from_config(config)
        return directories_by_location[script_location]

    with patch.object(directories, "from_config", once):
        yield


@pytest.fixture(scope="session", autouse=True)
def _engines_are_created_once() -> Iterator[None]:
    """Cache the SQLAlchemy engines of Dagster's SQLite files, and one connection of each.

    Dagster creates an engine for each query, and opens a file for it. Each engine compiles its statements, and each new
    connection parses the schema of its file.
    """
    storages = [module for name in _SQLITE_STORAGES if (module := sys.modules.get(f"dagster._core.storage.{name}"))]
    if not storages:
        yield
        return
    from sqlalchemy.pool import QueuePool

    engines, close_idle_connections = dict[tuple[str, str], Any](), list[Callable[[], None]]()

    def cached(create: Any) -> Any:
        def engine(url: str, **options: Any) -> Any:
            key = (url, repr(options))
            if key not in engines:
                if len(engines) % _OPEN_DATABASES == 0:
                    # Each run has a database.
                    for close in close_idle_connections:
                        close()
                engines[key] = create(url, **{**options, "poolclass": QueuePool, "pool_size": 1, "max_overflow": -1})
                close_idle_connections.append(engines[key].dispose)
                engines[key].dispose = lambda: None  # Dagster calls it after each query.
            return engines[key]

        return engine

    with ExitStack() as stack:
        for module in storages:
            stack.enter_context(patch.object(module, "create_engine", cached(module.create_engine)))
        yield
    for close in close_idle_connections:
        close()


@pytest.fixture(scope="session")
def realtables() -> Path:
    """The folder of real tables beside the repository.

    Tests that use it are skipped if it does not exist.
    """
    folder = REPOSITORY.parent / "shared" / "realtables"
    if not (folder / "manifest.json").exists():
        pytest.skip("the real tables are missing: ../shared/realtables")
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session with two workers for all tests of a process."""
    from metastore_assets.spark.session import get_spark_session, has_active_session

    if has_active_session():
        # A refresh in this process started it, without the settings below.
        get_spark_session().stop()
    # Workers import functions of tests. A JVM that an earlier test started does not pass on this process's path.
    session = get_spark_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        }
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The endpoint of an S3 server on the loopback interface: one for all tests of a process."""
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def s3_options(s3_endpoint: str) -> dict[str, str]:
    """Storage options to open tables and stored statistics on the server of `s3_endpoint`.

    A bucket named `metastore` is created on the server.
    """
    options = {"aws_access_key_id": "key", "aws_secret_access_key": "not-a-secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=s3_endpoint, **options).create_bucket(Bucket="metastore")
    return {
        "aws_endpoint": s3_endpoint,
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "not-a-secret",
    }
