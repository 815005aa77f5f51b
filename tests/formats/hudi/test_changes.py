"""Differences of Hudi tables' states: applied to the older snapshot they give the newer one, and they read little."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import SnapshotNotFoundError
from metastore_assets.formats import MetadataCache, NoDiff, Snapshot, SnapshotDiff, SnapshotMetadata, open_table_format
from metastore_assets.storage.location import Location
from tests.formats.hudi.random_histories import History
from tests.formats.hudi.realtables import completed, unpacked
from tests.formats.hudi.test_histories import _PARTS, _ROWS, _STEPS
from tests.formats.hudi.test_realtables import _NAMES
from tests.formats.hudi.writer import FIELDS, HudiWriter
from tests.formats.test_contract import assert_is_difference

_A = {"key": "a", "ts": 1, "value": 1.0}
_B = {"key": "b", "ts": 1, "value": 2.0}


@dataclass(frozen=True)
class Planned:
    """A snapshot, and what its plan cached."""

    snapshot: Snapshot
    cached: Mapping[bytes, bytes]

    @classmethod
    def of(cls, config: TableConfig, cached: Mapping[bytes, bytes] | None = None) -> Planned:
        cache = MetadataCache(lambda: cached or {}, ignore_process=True)
        return cls(open_table_format(config, cache).snapshot(), cache.entries)

    def changes(self, config: TableConfig) -> tuple[SnapshotDiff | NoDiff, Mapping[bytes, bytes]]:
        """What changed since, and what that plan cached."""
        cache = MetadataCache(lambda: self.cached, ignore_process=True)
        return open_table_format(config, cache).changes(self.snapshot.reference), cache.entries


def _config(folder: Path, at: str | None = None, **options: Any) -> TableConfig:
    return TableConfig(name="t", uri=str(folder), at=at, **options)


def assert_difference(former: Planned, config: TableConfig) -> Planned:
    """Check the difference since a snapshot, and return the newer one with what the difference's plan cached."""
    snapshot = open_table_format(config, MetadataCache(ignore_process=True)).snapshot()
    diff, cached = former.changes(config)
    assert isinstance(diff, SnapshotDiff), diff.reason
    assert diff.since == former.snapshot.reference
    for field in fields(SnapshotMetadata):
        assert getattr(diff.current, field.name) == getattr(snapshot, field.name), field.name
    assert diff.current.schema.equals(snapshot.schema, check_metadata=True)
    assert_is_difference(diff, former.snapshot, snapshot)
    assert diff.removed == _paths(former.snapshot, snapshot), "exactly those that changed"
    return Planned(snapshot, cached)


def _paths(one: Snapshot, other: Snapshot) -> set[tuple[str, str]]:
    """Partition key and path of the fragments that only the first snapshot has."""
    ids = {fragment.id for fragment in other.fragments}
    return {(fragment.partition_key, fragment.path) for fragment in one.fragments if fragment.id not in ids}


class CleanedHistory(History):
    """A history with the services that remove files, from data and from the timeline."""

    def clean(self) -> None:
        """Remove the files that no current slice has."""
        writer = self.writer
        newest = {(one.partition, one.file_id): one.base_name for one in self.slices()}
        pending = {one.file_id for one in self.slices() if one.planned}
        removed: dict[str, list[str]] = {}
        for path in sorted(writer.folder.glob("part=*/*")):
            file_id = path.name.lstrip(".").partition("_")[0]
            if path.name.startswith(".hoodie") or "orphan" in str(path) or file_id in pending:
                continue
            base = newest.get((path.parent.name, file_id))
            is_old_base = path.suffix == ".parquet" and path.name != base
            is_old_log = ".log." in path.name and base is not None and self._is_older(path.name, base)
            if base is None or is_old_base or is_old_log:
                removed.setdefault(path.parent.name, []).append(path.name)
        writer.clean(removed)

    def _is_older(self, log: str, base: str) -> bool:
        """Whether a log file was compacted into the base file. Later ones may be removed with what they belong to."""
        instant = log.partition(".log.")[0].rpartition("_")[2]
        return instant < base.rpartition("_")[2].removesuffix(".parquet")


_MORE_STEPS = st.one_of(_STEPS, _STEPS, st.tuples(st.just("clean")))


def _take(history: History, name: str, arguments: list[Any]) -> None:
    if arguments and isinstance(arguments[0], int):
        groups = history.slices()
        arguments[0] = groups[arguments[0] % len(groups)]
    getattr(history, name)(*arguments)


@settings(max_examples=max(30, settings().max_examples))
@given(
    st.sampled_from([6, 9]),
    st.booleans(),
    _PARTS,
    _ROWS,
    st.lists(st.tuples(_MORE_STEPS, st.booleans()), min_size=1, max_size=14),
)
def test_differences_of_random_histories(
    version: int, by_commit: bool, part: str, rows: list[Any], steps: list[tuple[tuple[Any, ...], bool]]
) -> None:
    """Since the state before, since one some steps ago, and since the first; from a snapshot or another difference."""
    with tempfile.TemporaryDirectory() as folder:
        history = CleanedHistory(HudiWriter(Path(folder) / "t", version, by_commit=by_commit))
        config = _config(history.writer.folder)
        history.insert(part, rows)
        first = chained = Planned.of(config)
        for (name, *arguments), is_planned in steps:
            _take(history, name, arguments)
            if is_planned:
                chained = assert_difference(chained, config)
        assert_difference(chained, config)
        assert_difference(first, config)


@settings(max_examples=max(10, settings().max_examples // 4))
@given(st.sampled_from([6, 9]), st.booleans(), _PARTS, _ROWS, st.lists(_STEPS, min_size=2, max_size=8), st.data())
def test_differences_between_states_of_the_past(
    version: int, by_commit: bool, part: str, rows: list[Any], steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    """Of any two, in either order: `at` may be moved. A state that cannot be read is no state to compare with."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(HudiWriter(Path(folder) / "t", version, by_commit=by_commit))
        history.insert(part, rows)
        for name, *arguments in steps:
            _take(history, name, arguments)
        ats = data.draw(st.lists(st.sampled_from(sorted(history.states)), min_size=2, max_size=2))
        try:
            former = Planned.of(_config(history.writer.folder, ats[0]))
            assert_difference(former, _config(history.writer.folder, ats[1]))
        except SnapshotNotFoundError:
            return


@pytest.mark.parametrize("name", _NAMES)
def test_consecutive_instants_of_real_tables(name: str, realtables: Path) -> None:
    """Forwards one by one, and the whole way at once; and back."""
    table = unpacked(realtables, name)
    instants = list(completed(table))
    planned = [Planned.of(_config(table, instant)) for instant in instants]
    pairs = [*pairwise(range(len(instants))), *([(0, len(instants) - 1)] if instants else [])]
    for former, current in (*pairs, *((current, former) for former, current in pairs)):
        config = _config(table, instants[current])
        if planned[former].snapshot.schema.equals(planned[current].snapshot.schema):
            assert_difference(planned[former], config)
        else:
            assert_no_diff(planned[former], config, "the schema changed")


def assert_no_diff(former: Planned, config: TableConfig, reason: str) -> None:
    diff, _ = former.changes(config)
    assert isinstance(diff, NoDiff)
    assert reason in diff.reason
