"""The record of an unfinished backfill returns the finished partitions that are still current.

A backfill computes the statistics (profiles) of selected partitions, and publishes them in versions of the table. After
an interruption, a later backfill with the same request continues from the record. Invalid records are ignored.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_assets.store.backfills import BackfillRecord
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import PartitionEntry, ProfileFiles, Version


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path / "t"))


def version(number: int, partitions: dict[str, int]) -> Version:
    """Return a version whose partitions were profiled by the versions with the given numbers."""
    files = ProfileFiles("s", "", ())
    entries = [PartitionEntry(key, key, 1, 1, 1, files, created_at) for key, created_at in partitions.items()]
    now = datetime.now(UTC)
    return Version(
        number, "t", "files", "s", None, now, pa.schema([]), ("p",), 1, 1, "c", files, "0", "l", {}, (), entries
    )


def test_finished_partitions_that_are_still_current(objects: ObjectStore) -> None:
    """A recorded partition is finished if the newest version's profile of it is not older than recorded.

    The record has the number of the version that profiled the partition. A partition that was dropped, or restored with
    the profile of an older version, is not finished. Another request has another record.
    """
    record = BackfillRecord.of(objects, "request", version(4, {"p=1": 1}))
    record.add(["p=1", "p=2", "p=3"], 5)
    record.add(["p=4"], 6)
    again = BackfillRecord.of(objects, "request", version(9, {}))
    assert again.attempt == record.attempt
    assert (again.since, again.done) == (4, {"p=1": 5, "p=2": 5, "p=3": 5, "p=4": 6})
    assert again.finished_keys(version(9, {"p=1": 5, "p=2": 8, "p=3": 3, "p=9": 9})) == {"p=1", "p=2"}
    assert again.finished_keys(None) == frozenset()
    assert BackfillRecord.of(objects, "another", version(9, {})).done == {}
    again.remove()
    assert BackfillRecord.of(objects, "request", version(9, {})).done == {}


def test_a_recreated_root_ignores_older_records(objects: ObjectStore) -> None:
    """A root is recreated, so the version numbers of its tables start at 1 again.

    A record that names a greater version number than that of the newest version is ignored.
    """
    BackfillRecord.of(objects, "request", version(7, {})).add(["p=1"], 8)
    record = BackfillRecord.of(objects, "request", version(2, {"p=1": 2}))
    assert (record.since, record.done) == (2, {})
    assert BackfillRecord.of(objects, "request", None).done == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"since": 1, "done": ["p=1"]}',
        '{"since": "x", "done": {}}',
        '{"attempt": "a", "since": Infinity, "done": {}}',
        "\x00",
    ],
)
def test_a_damaged_record_is_ignored(objects: ObjectStore, text: str) -> None:
    record = BackfillRecord.of(objects, "request", version(1, {}))
    objects.write(record.path, text.encode())
    record_from_store = BackfillRecord.of(objects, "request", version(1, {}))
    assert replace(record_from_store, attempt=record.attempt) == record
    assert record_from_store.attempt != record.attempt
