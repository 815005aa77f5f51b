"""Dagster's instance on PostgreSQL gets the same events as on SQLite, in limited time and storage."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster_postgres.event_log import PostgresEventLogStorage

from benchmarks.events import MOST_MB, MOST_SECONDS, SHARE, report_events
from benchmarks.postgres_server import postgres_server, programs
from tests.assets.lab import SETTINGS, Lab, all_of, lab_in
from tests.assets.test_runs import partitions, stale

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.skipif(programs() is None, reason="no PostgreSQL is installed: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def database(url: str) -> str:
    """An empty database on the server."""
    from sqlalchemy import create_engine, text

    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        name = f"dagster{connection.execute(text('SELECT count(*) FROM pg_database')).scalar_one()}"
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return url.removesuffix("/postgres") + f"/{name}"


@pytest.fixture
def lab(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """The test project of other tests, with its Dagster instance on PostgreSQL and without Spark."""
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    with lab_in(tmp_path, SETTINGS | {"storage": {"postgres": {"postgres_url": database}}}) as new_lab:
        new_lab.config_file.write_text(new_lab.config_file.read_text() + "engine: auto\n")
        assert isinstance(new_lab.instance.event_log_storage, PostgresEventLogStorage)
        yield new_lab


def test_commits_are_reported(lab: Lab) -> None:
    """A run after commits reports each changed partition once.

    Afterwards, Dagster does not list the removed partition, and nothing is outdated.
    """
    assert lab.reported_events(lab.refresh("sales")) == all_of(1, 2, 3)
    lab.append(1, 7, 5, seed=1)
    lab.delete("day = '2024-01-03'")
    assert lab.reported_events(lab.refresh("sales")) == all_of(1, 5, 7)
    assert partitions(lab.instance, "sales") == [f"day=2024-01-0{day}" for day in (1, 2, 5, 7)]
    assert stale(lab, "sales") == set()
    assert lab.tick("sales").run_requests == []


def test_an_interrupted_report_continues(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a run fails between two batches of events, the next run reports only the remaining partitions."""
    monkeypatch.setattr("metastore_assets.assets.events._BATCH", 2)
    store, batch_sizes = PostgresEventLogStorage.store_event_batch, list[int]()

    def cut(self: PostgresEventLogStorage, events: Any) -> None:
        if batch_sizes:
            raise ConnectionError("the server went away")
        batch_sizes.append(len(events))
        store(self, events)

    lab.append(4, 5)
    with monkeypatch.context() as patch:
        patch.setattr(PostgresEventLogStorage, "store_event_batch", cut)
        (request,) = lab.tick("sales").run_requests or []
        first = lab.run("sales", request, raise_on_error=False)
    assert not first.success
    assert lab.reported_events(first) == all_of(1, 2, table=False)
    assert lab.reported_events(lab.refresh("sales")) == all_of(3, 4, 5)
    assert stale(lab, "sales") == set()


def test_many_partitions_are_reported_fast(tmp_path: Path, database: str) -> None:
    """2,000 partitions take less than a tenth of the time and the storage that are allowed for 20,000."""
    report = report_events(tmp_path, 2_000, database)
    assert report.seconds < MOST_SECONDS * 2_000 / SHARE
    assert report.megabytes < MOST_MB * 2_000 / SHARE
