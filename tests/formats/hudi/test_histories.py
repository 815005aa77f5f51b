"""Every state of randomly written Hudi tables has the rows that the steps produced.

A state is the content of the table after one completed write. A fragment is a file slice: a base file and its log
files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.formats import Snapshot, open_table_format
from tests.formats.hudi.random_histories import History
from tests.formats.hudi.writer import HudiWriter
from tests.formats.oracle import read_rows
from tests.formats.test_metadata_cache import assert_same as same_plan
from tests.formats.test_metadata_cache import plan

_KEYS = st.sampled_from(["a", "b", "c", "d"])
_ROWS = st.lists(
    st.fixed_dictionaries({"key": _KEYS, "ts": st.integers(1, 5), "value": st.none() | st.integers(0, 99).map(float)}),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row["key"],
)
_DELETES = st.dictionaries(_KEYS, st.integers(0, 5), max_size=2)
_PARTS = st.sampled_from(["x", "y"])
_STEPS = st.one_of(
    st.tuples(st.just("insert"), _PARTS, _ROWS, st.booleans()),
    st.tuples(st.just("upsert"), st.integers(0, 9), _ROWS, _DELETES, st.sampled_from([3, 5])),
    st.tuples(st.just("upsert"), st.integers(0, 9), _ROWS, _DELETES, st.sampled_from([3, 5])),
    st.tuples(st.just("rewrite"), st.integers(0, 9), _ROWS),
    st.tuples(st.just("fail"), st.integers(0, 9), _ROWS, st.booleans()),
    st.tuples(st.just("plan_compaction"), st.integers(0, 9)),
    st.tuples(st.just("compact"), st.integers(0, 9)),
    st.tuples(st.just("replace"), _PARTS, _ROWS),
)


def _open(folder: Path, at: str | None = None) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(folder), at=at)).snapshot()


def _sorted_rows(snapshot: Snapshot) -> list[tuple[Any, ...]]:
    return sorted(read_rows(snapshot), key=repr)


@settings(max_examples=max(10, settings().max_examples // 2))
@given(st.sampled_from([6, 9]), st.booleans(), _PARTS, _ROWS, st.lists(_STEPS, max_size=12))
def test_every_state_has_the_rows_of_its_steps(
    version: int, by_commit: bool, part: str, rows: list[Any], steps: list[tuple[Any, ...]]
) -> None:
    """After each random step, the newest state has the expected rows.

    After the last step, the earlier states have their expected rows. States that a compaction may have changed are not
    compared. Equal fragment ids mean equal rows. Snapshots are equal with and without cached metadata of earlier
    states.
    """
    with tempfile.TemporaryDirectory() as folder:
        writer = HudiWriter(Path(folder) / "t", version, by_commit=by_commit)
        history = History(writer)
        history.insert(part, rows)
        contents: dict[str, list[tuple[Any, ...]]] = {}
        cache_: Mapping[bytes, bytes] = {}
        for name, *arguments in steps:
            if isinstance(arguments[0], int):
                groups = history.slices()
                arguments[0] = groups[arguments[0] % len(groups)]
            getattr(history, name)(*arguments)
            snapshot = _open(writer.folder)
            planned_snapshot, cache_ = plan(TableConfig(name="t", uri=str(writer.folder)), cache_)
            same_plan(planned_snapshot, snapshot)
            assert _sorted_rows(snapshot) == history.rows()
            for fragment in snapshot.fragments:
                rows_read = sorted(read_rows(snapshot, [fragment]), key=repr)
                assert contents.setdefault(fragment.id, rows_read) == rows_read
        replayed_rows = {instant: _sorted_rows(_open(writer.folder, instant)) for instant in history.states}
        for instant, expected in history.states.items():
            assert replayed_rows[instant] == expected, instant
