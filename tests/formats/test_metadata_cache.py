"""For every format, planning with cached metadata gives the same plan as planning from scratch.

A plan is a snapshot of a table with its schema and its fragments: data files and the deletes on them.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.formats import MetadataCache, Snapshot, open_table_format
from metastore_assets.formats.files.csv.options import CsvOptions
from metastore_assets.formats.files.csv.reader import CsvReader
from metastore_assets.formats.files.json.reader import JsonReader
from tests.formats.hudi.tables import HUDI_TABLES
from tests.formats.iceberg.tables import ICEBERG_TABLES
from tests.formats.lance.tables import LANCE_TABLES
from tests.formats.table_writers import DAYS, TABLES, CsvFiles, JsonFiles, ParquetFiles, Table

_TABLES = (*TABLES, *ICEBERG_TABLES, *HUDI_TABLES, *LANCE_TABLES)
_FIRST = [(number, f"text {number}", DAYS[number % 3]) for number in range(12)]
_STEPS = st.one_of(
    st.tuples(st.just("append"), st.sets(st.sampled_from(DAYS), min_size=1)),
    st.tuples(st.just("delete"), st.sets(st.integers(0, 25), min_size=1, max_size=9)),
    st.tuples(st.just("compact"), st.sampled_from(DAYS)),
)


def plan(config: TableConfig, cache_entries: Mapping[bytes, bytes]) -> tuple[Snapshot, Mapping[bytes, bytes]]:
    """Plan a snapshot with the given cached metadata only.

    Return the snapshot and the new content of the cache.
    """
    cache = MetadataCache(lambda: cache_entries, ignore_process=True)
    return open_table_format(config, cache).snapshot(), cache.entries


def assert_same(planned_snapshot: Snapshot, scratch: Snapshot) -> None:
    assert planned_snapshot.schema.equals(scratch.schema, check_metadata=True)
    assert set(planned_snapshot.type_reasons) == set(scratch.type_reasons)
    for name in ("format", "id", "committed_at", "partition_columns", "fragments"):
        assert getattr(planned_snapshot, name) == getattr(scratch, name), name


def assert_cache_changes_no_plan(config: TableConfig, cache_entries: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """Check that a plan with cached metadata equals one from scratch.

    Return the new content of the cache. Check that another plan with this content does not change the content.
    """
    scratch, first = plan(config, {})
    planned_snapshot, new_cache = plan(config, cache_entries)
    assert_same(planned_snapshot, scratch)
    assert (
        open_table_format(config, MetadataCache(lambda: cache_entries, ignore_process=True)).current()
        == scratch.reference
    )
    again, same = plan(config, new_cache)
    assert_same(again, scratch)
    assert same == new_cache
    assert len(new_cache) <= len(first) + 64
    return new_cache


def _apply(table: Table, name: str, argument: Any) -> None:
    if name == "append":
        start = table.next_id
        table.append([(start + index, f"t{start}\n,\"'", day) for index, day in enumerate(sorted(argument) * 2)])
    elif name == "delete":
        table.delete(argument)
    else:
        table.compact(argument)


@pytest.mark.parametrize("kind", _TABLES, ids=lambda kind: kind.__name__)
@given(steps=st.lists(_STEPS, min_size=1, max_size=4), skipped_steps=st.sets(st.integers(0, 3)))
@settings(max_examples=max(4, settings().max_examples // 20))
def test_cached_metadata_changes_no_plan(
    kind: type[Table], steps: list[tuple[str, Any]], skipped_steps: set[int]
) -> None:
    """After random appends, deletes and compactions, a plan with cached metadata equals one from scratch.

    Some commits are not planned, so that the cache is older than the last commit.
    """
    with tempfile.TemporaryDirectory() as folder:
        table = kind(Path(folder) / "t")
        table.append(_FIRST)
        config = TableConfig(name="t", uri=str(table.folder))
        cache_entries = assert_cache_changes_no_plan(config, {})
        for number, step in enumerate(steps):
            _apply(table, *step)
            if not table.rows:
                return
            if number not in skipped_steps:
                cache_entries = assert_cache_changes_no_plan(config, cache_entries)


@pytest.mark.parametrize("kind", _TABLES, ids=lambda kind: kind.__name__)
def test_invalid_cached_metadata_is_ignored(kind: type[Table], tmp_path: Path) -> None:
    """If cached values are truncated or replaced, the plan equals one from scratch."""
    table = kind(tmp_path / "t")
    table.append(_FIRST)
    table.append([(20, "more", DAYS[0])])
    config = TableConfig(name="t", uri=str(table.folder))
    scratch, new_cache = plan(config, {})
    draw = random.Random(1)
    for damage in (b"", b"null", b"[]", b"{}", b"\xff\x00", b'["x", 1]', b"[1, 2, 3, 4]", draw.randbytes(200)):
        planned_snapshot, _ = plan(config, dict.fromkeys(new_cache, damage))
        assert_same(planned_snapshot, scratch)
    for _ in range(5):
        cut = {key: value[: draw.randrange(len(value) + 1)] for key, value in new_cache.items()}
        planned_snapshot, _ = plan(config, cut)
        assert_same(planned_snapshot, scratch)


@pytest.mark.parametrize("kind", [ParquetFiles, CsvFiles, JsonFiles])
def test_a_file_that_is_overwritten_is_read_again(kind: type[Any], tmp_path: Path) -> None:
    """After a file is overwritten, the next plan has its new row count.

    After the file is deleted, the cache drops its metadata.
    """
    table = kind(tmp_path / "t")
    table.append(_FIRST)
    config = TableConfig(name="t", uri=str(table.folder))
    snapshot, new_cache = plan(config, {})
    path = Path(snapshot.fragments[0].path)
    table.overwrite(path, [(1, "x", DAYS[0])])
    (planned_fragment,) = [one for one in plan(config, new_cache)[0].fragments if one.path == str(path)]
    assert planned_fragment.row_count == 1
    path.unlink()
    after = plan(config, new_cache)[1]
    # The key of a block of footers has the id of its first file, so a key of the remaining files may be new.
    assert len(after) <= len(new_cache)
    assert sum(map(len, after.values())) < sum(map(len, new_cache.values()))


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"\r\n\0,\\'), max_size=12)
_CELL = st.one_of(st.integers(-(2**64), 2**65).map(str), st.floats().map(repr), st.dates().map(str), _TEXT)


@given(rows=st.lists(st.tuples(_CELL, _CELL), min_size=1, max_size=8), header=st.none() | st.booleans())
def test_csv_shapes_survive_the_cache(rows: list[tuple[str, str]], header: bool | None) -> None:
    """The summary of a random CSV file is encoded for the cache, and decoded unchanged."""
    text = "".join(f"{one},{other}\n" for one, other in rows).encode()
    reader = CsvReader(CsvOptions(header=header))
    try:
        summary = reader.summarize(lambda: pa.BufferReader(text))
    except pa.ArrowInvalid:
        return
    assert reader.decode(reader.encode(summary)) == summary


_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(rows=st.lists(st.dictionaries(st.text(max_size=3), _VALUE, max_size=3), max_size=5))
def test_json_shapes_survive_the_cache(rows: list[dict[str, Any]]) -> None:
    """The summary of a random JSON file is encoded for the cache, and decoded unchanged."""
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    reader = JsonReader()
    try:
        summary = reader.summarize(lambda: pa.BufferReader(text))
    except pa.ArrowInvalid:
        return
    decoded_summary = reader.decode(reader.encode(summary))
    assert decoded_summary == summary
    assert repr(decoded_summary) == repr(summary)
