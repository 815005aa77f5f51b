"""After any commits, the fragment index prunes as plain Python does with the bounds of each fragment.

To prune is to select the fragments that may have rows which match a condition. A fragment is a unit of rows that a
commit adds or removes, here one data file. The index stores the bounds of its columns. A commit adds a segment to the
index, and may merge older segments. A directory has the Parquet footers of some files of a segment.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.pruning import version
from metastore_assets.errors import CorruptionError
from metastore_assets.expressions.predicates import BoundColumn, referenced_columns
from metastore_assets.expressions.row_bounds import RowBounds
from metastore_assets.index import (
    IndexReader,
    IndexRows,
    fragment_reader,
    fragment_segments,
    fragment_writer,
    update_index,
    zones,
)
from metastore_assets.index.fragment_index import FRAGMENTS, column_schema
from metastore_assets.lookup import Table
from metastore_assets.lookup.pruning import Pruning
from metastore_assets.metastore import open_scanner
from metastore_assets.statistics.typed_union import pack_scalars, union_type
from metastore_assets.store import joined_parquet, segment_levels
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges, SegmentFiles
from metastore_assets.store.version import fragment_key
from metastore_assets.values.types import class_named

CLASSES = {"part": class_named("int64"), "text": class_named("string"), "day": class_named("date"),
           "price": class_named("decimal_2"), "ratio": class_named("float64")}  # fmt: skip
UNION = union_type(CLASSES.values())
EPOCH = date(2020, 1, 1)


@dataclass(frozen=True)
class Bounds:
    """The bounds of one column in one fragment.

    Values are numbers, which `literal` converts to SQL.
    """

    nulls: int | None
    low: int | None
    high: int | None


@dataclass(frozen=True)
class Fragment:
    partition_key: str
    path: str
    rows: int
    size: int
    columns: Mapping[str, Bounds]


def drawn_fragment(key: int, draw: random.Random) -> Fragment:
    """Draw a fragment.

    The column `part` has one value in all fragments of a partition, so that predicates can select partitions.
    """
    partition = key % 40
    rows = draw.choice([0, 1, 5, 100])
    columns = {"part": Bounds(0, partition, partition) if rows else Bounds(0, None, None)}
    for name in draw.sample(sorted(CLASSES.keys() - {"part"}), 3):
        nulls = draw.choice([0, 0, rows, draw.randint(0, rows), None])
        low = draw.randrange(60)
        has_bounds = draw.random() < 0.9 and (nulls is None or nulls < rows)
        columns[name] = Bounds(nulls, low, low + draw.choice([0, 3, 20])) if has_bounds else Bounds(nulls, None, None)
    return Fragment(f"part={partition}", f"s3://b/{key:04}.parquet", rows, draw.randrange(10**6), columns)


def value(name: str, number: int) -> Any:
    """Convert a number to a value of a column.

    The values have the order of the numbers.
    """
    return {
        "part": lambda: pa.scalar(number),
        "text": lambda: pa.scalar(f"t{number:03}", pa.large_string()),
        "day": lambda: pa.scalar(EPOCH + timedelta(days=number), pa.date32()),
        "price": lambda: pa.scalar(number, pa.decimal128(38, 2)),
        "ratio": lambda: pa.scalar(number / 4),
    }[name]()


def literal(name: str, number: int) -> str:
    return {
        "part": f"{number}",
        "text": f"'t{number:03}'",
        "day": f"date '{EPOCH + timedelta(days=number)}'",
        "price": f"{number}.00",
        "ratio": f"{number / 4}",
    }[name]


def rows_of(fragments: Sequence[Fragment]) -> IndexRows:
    """Return fragments as the rows of an index."""
    table = pa.table(
        [
            [fragment.partition_key for fragment in fragments],
            [fragment.path for fragment in fragments],
            pa.array([fragment.rows for fragment in fragments], pa.int64()),
            pa.array([fragment.size for fragment in fragments], pa.int64()),
            [f"id {fragment.path}" for fragment in fragments],
        ],
        schema=FRAGMENTS,
    )
    columns = {}
    for name in {name for fragment in fragments for name in fragment.columns}:
        bounds = [fragment.columns.get(name, Bounds(fragment.rows, None, None)) for fragment in fragments]
        sides = [
            pack_scalars([None if number is None else value(name, number) for number in numbers], UNION)
            for numbers in ([each.low for each in bounds], [each.high for each in bounds])
        ]
        counts = [pa.array([each.nulls for each in bounds], pa.int64()), pa.array([0] * len(bounds), pa.int64())]
        columns[name] = pa.table([*counts, *sides], schema=column_schema(UNION))
    return IndexRows(table, columns)


@dataclass(frozen=True)
class Condition:
    sql: str
    rows: Callable[[Fragment], tuple[int, int]]
    """The least and the greatest number of matching rows of a fragment."""
    keyword: str = ""
    children: tuple[Condition, ...] = ()


def joined(keyword: str, parts: Sequence[Condition]) -> Condition:
    """Combine conditions by `keyword`, which is `and` or `or`.

    A part with the same keyword is replaced by its own parts. Duplicates are removed.
    """
    flat = [child for part in parts for child in (part.children if part.keyword == keyword else (part,))]
    distinct = tuple({part.sql: part for part in flat}.values())
    if len(distinct) == 1:
        return distinct[0]

    def rows(fragment: Fragment) -> tuple[int, int]:
        bounds = [part.rows(fragment) for part in distinct]
        least, most = [low for low, _ in bounds], [high for _, high in bounds]
        if keyword == "and":
            return max(0, sum(least) - (len(bounds) - 1) * fragment.rows), min(most)
        return max(least), min(sum(most), fragment.rows)

    return Condition(f"({f' {keyword} '.join(part.sql for part in parts)})", rows, keyword, distinct)


def drawn_condition(draw: random.Random, depth: int = 2) -> Condition:
    """Draw a condition on one column, or a condition of two parts joined with `and` or `or`.

    Conditions on a column are comparisons, lists and null tests. Joined conditions are at most `depth` levels deep.
    """
    if depth and draw.random() < 0.6:
        parts = [drawn_condition(draw, depth - 1) for _ in range(2)]
        return joined("and" if draw.random() < 0.6 else "or", parts)
    name = draw.choice([*CLASSES, "part"])
    numbers = sorted({draw.randrange(70) for _ in range(draw.choice([1, 3]))})
    kind = draw.choice(["=", "!=", "<", ">=", "in", "not in", "null", "not null"])
    sql = {
        "in": f"{name} in ({', '.join(literal(name, number) for number in numbers)})",
        "not in": f"{name} not in ({', '.join(literal(name, number) for number in numbers)})",
        "null": f"{name} is null",
        "not null": f"{name} is not null",
    }.get(kind, f"{name} {kind} {literal(name, numbers[0])}")

    def rows(fragment: Fragment) -> tuple[int, int]:
        """Return the least and the greatest number of rows that match, by the bounds and nulls of the column."""
        column_bounds = fragment.columns.get(name, Bounds(fragment.rows, None, None))
        nulls = (0, fragment.rows) if column_bounds.nulls is None else (column_bounds.nulls, column_bounds.nulls)
        if kind == "null":
            return nulls
        values = fragment.rows - nulls[1], fragment.rows - nulls[0]
        if kind == "not null":
            return values
        if column_bounds.low is None or column_bounds.high is None:
            return 0, values[1]
        range_ = set(range(column_bounds.low, column_bounds.high + 1))
        if kind in ("in", "not in", "=", "!="):
            chosen_numbers = set(numbers) if "in" in kind else {numbers[0]}
            some, every = bool(range_ & chosen_numbers), len(range_) == 1 and range_ <= chosen_numbers
            if kind in ("not in", "!="):
                some, every = not every, not some
        else:
            matching = {number for number in range_ if (number < numbers[0]) == (kind == "<")}
            some, every = bool(matching), matching == range_
        return values[0] if every else 0, values[1] if some else 0

    return Condition(sql, rows)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the sizes of an index's files, row groups and other parts, so that small tables have many."""
    sizes = {
        "_SMALL_ROWS": 10,
        "_FILE_ROWS": 30,
        "_MIN_FILE_ROWS": 1,
        "_GROUP_ROWS": 8,
        "_WINDOW_ROWS": 24,
        "_MIN_SOURCE_ROWS": 8,
        "_DIRECTORY_FILES": 4,
    }
    for name, size in sizes.items():
        monkeypatch.setattr(fragment_writer, name, size)
    monkeypatch.setattr(zones, "_MIN_ROWS", 2)
    monkeypatch.setattr(zones, "_MAX_ROWS", 5)
    monkeypatch.setattr(fragment_segments, "_DIRECT_ROWS", 16)
    monkeypatch.setattr(fragment_reader, "_WINDOW_ROWS", 16)
    for module in (fragment_segments, fragment_reader):
        monkeypatch.setattr(module, "ZONES_PER_GROUP", 2)


def check(store: ObjectStore, files: SegmentFiles, fragments: Mapping[str, Fragment], draw: random.Random) -> None:
    """Compare prunings by random conditions with the results of a loop over all fragments.

    Also check the lookup of fragments by their keys.
    """
    schema = pa.schema([(name, cls.arrow) for name, cls in CLASSES.items()])
    table = Table(store, replace(version(files), schema=schema), open_scanner)
    for _ in range(4):
        condition = drawn_condition(draw)
        where, rows = condition.sql, condition.rows
        pruning = table.prune(where)
        expected_rows = [
            (fragment.path, fragment.partition_key, fragment.size, fragment.rows, *rows(fragment))
            for key, fragment in sorted(fragments.items())
            if rows(fragment)[1]
        ]
        assert [tuple(vars(fragment).values()) for fragment in pruning.fragments] == expected_rows, where
        assert pruning.row_bounds == (sum(row[4] for row in expected_rows), sum(row[5] for row in expected_rows))
        assert pruning.paths == [row[0] for row in expected_rows]
        predicate = table.predicate(where)
        count = table.pruner.index.exact_row_count(
            list(referenced_columns(predicate)),
            lambda bounded_rows, predicate=predicate: predicate.bound_rows(
                bounded_rows.row_counts, bounded_rows.columns
            ),
        )
        assert count is None or pruning.row_bounds == (count, count)
        assert pruning.fragments_total == len(fragments)
        assert pruning.bytes_total == sum(fragment.size for fragment in fragments.values())
        complete = Pruning(table.pruner, table.predicate(where), selects_all=True)
        assert pruning.explanation == complete.explanation
        assert pruning.rows_by_id() == complete.rows_by_id()
    keys = draw.sample(sorted(fragments), draw.randrange(len(fragments) + 1))
    result = IndexReader(store, files).find({*keys, "part=1\0s3://b/none"}).fragments(("path",))["path"].to_pylist()
    assert sorted(result) == sorted(fragments[key].path for key in keys)


KEYS = st.one_of(st.sets(st.integers(0, 200), max_size=4), st.sets(st.integers(0, 200), max_size=60))


@settings(max_examples=max(6, settings().max_examples // 50), deadline=None)
@given(
    st.lists(st.tuples(KEYS, st.sets(st.integers(0, 200), max_size=9)), min_size=1, max_size=9),
    st.sampled_from([1, 7, 1000]),
    st.integers(0, 10**6),
)
def test_pruning_is_correct_after_any_commits(
    commits: Sequence[tuple[set[int], set[int]]], lot: int, seed: int
) -> None:
    """After any commits, a pruning has the fragments and row bounds that a loop over all fragments finds.

    Row bounds are the least and the greatest number of matching rows. Commits add, replace and remove fragments, in one
    batch or several, and segments are merged.
    """
    draw = random.Random(seed)
    now: dict[str, Fragment] = {}
    files: SegmentFiles | None = None
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_levels, "_BASE_GROWTH", draw.choice([1, 100]))
        patch.setattr(segment_levels, "_MAX_WAITING", draw.choice([1, 4]))
        patch.setattr(segment_levels, "_WORK_PER_KEY", draw.choice([0, 6]))
        store = ObjectStore(folder)
        for added_keys, removed_keys in commits:
            added_fragments = [drawn_fragment(key, draw) for key in added_keys]
            draw.shuffle(added_fragments)
            by_key = {fragment_key(fragment.partition_key, fragment.path): fragment for fragment in added_fragments}
            names = {fragment_key(f"part={key % 40}", f"s3://b/{key:04}.parquet") for key in removed_keys}
            removed_names = (names & now.keys()) - by_key.keys()
            replaced_keys = now.keys() & by_key.keys()
            now = {key: fragment for key, fragment in {**now, **by_key}.items() if key not in removed_names}
            lots = (rows_of(added_fragments[start : start + lot]) for start in range(0, len(added_fragments), lot))
            changes = KeyChanges(by_key.keys(), removed_names, len(now), may_merge=draw.random() < 0.7)
            files = update_index(store, files, lots, changes, draw.choice([replaced_keys, None]))
            assert {info.path for info in store.list()} >= set(files.paths())
            if now:
                check(store, files, now, draw)


def test_an_index_with_other_fragments_than_the_version_is_reported(tmp_path: Any) -> None:
    store = ObjectStore(str(tmp_path))
    fragments = [drawn_fragment(key, random.Random(key)) for key in range(12)]
    rows = rows_of(fragments)
    files = update_index(store, None, [rows], KeyChanges(rows.keys(), (), 12, may_merge=True))
    with pytest.raises(CorruptionError, match=r"\b12 rows.*\b13\b.*--full"):
        IndexReader(store, replace(files, rows=13)).all  # noqa: B018


def test_batches_without_fragments_are_ignored(tmp_path: Any) -> None:
    fragments = [drawn_fragment(key, random.Random(key)) for key in range(12)]
    rows, empty = rows_of(fragments), rows_of([])
    store = ObjectStore(str(tmp_path))
    files = update_index(store, None, [empty, rows, empty, empty], KeyChanges(rows.keys(), (), 12, may_merge=True))
    paths = IndexReader(store, files).all.fragments(("path",))["path"].to_pylist()
    assert sorted(paths) == sorted(fragment.path for fragment in fragments)


def damaged(data: bytes) -> Iterator[bytes]:
    """Yield damaged forms of a Parquet file: truncated, with a changed byte in its last page, and empty."""
    yield data[: len(data) // 10]  # More than half of a small file is its footer, which the directory has, too.
    at = len(data) - 9 - int.from_bytes(data[-8:-4], "little")
    yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    yield b""


def read_all(store: ObjectStore, files: SegmentFiles) -> None:
    reader = IndexReader(store, files)
    columns = [BoundColumn(name, name, cls) for name, cls in CLASSES.items()]
    reader.select(columns, lambda rows: RowBounds(rows.row_counts, rows.row_counts))
    reader.all.fragments(tuple(FRAGMENTS.names))
    reader.all.bounds(columns)


def test_errors_name_damaged_files(tmp_path: Any) -> None:
    store = ObjectStore(str(tmp_path))
    fragments = [drawn_fragment(key, random.Random(key)) for key in range(70)]
    rows = rows_of(fragments)
    files = update_index(store, None, [rows], KeyChanges(rows.keys(), (), 70, may_merge=True))
    read_all(store, files)
    assert len(files.paths()) > 2
    for path in files.paths():
        data = store.read(path)
        for other in damaged(data):
            store.write(path, other)
            with pytest.raises(CorruptionError, match=path.rpartition("/")[2]):
                read_all(store, files)
        store.write(path, data)


def test_a_missing_file_of_a_segment_is_reported(tmp_path: Any) -> None:
    store = ObjectStore(str(tmp_path))
    rows = rows_of([drawn_fragment(key, random.Random(key)) for key in range(70)])
    files = update_index(store, None, [rows], KeyChanges(rows.keys(), (), 70, may_merge=True))
    with pytest.raises(CorruptionError, match="--full"):
        read_all(store, replace(files, files=files.files[:-1]))


def test_a_directory_of_other_files_is_named(tmp_path: Any) -> None:
    store = ObjectStore(str(tmp_path))
    rows = rows_of([drawn_fragment(key, random.Random(key)) for key in range(300)])
    files = update_index(store, None, [rows], KeyChanges(rows.keys(), (), 300, may_merge=True))
    first, second, *others = files.directories
    store.write(first.path, store.read(second.path))
    with pytest.raises(CorruptionError, match=rf"{first.path}\b.*{files.files[0].path}"):
        read_all(store, files)
    with pytest.raises(CorruptionError, match=str(tmp_path)):
        read_all(store, replace(files, directories=(first, *others)))


@pytest.mark.parametrize("count", [8, 32])
def test_merged_segments_share_the_rows_that_are_in_memory(
    count: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more segments are merged, the fewer rows of each are in memory at once.

    Every stored row is read once.
    """
    monkeypatch.setattr(fragment_writer, "_WINDOW_ROWS", 256)
    read_rows: list[int] = []
    read = fragment_segments.LargeSegment.read

    def counted(segment: Any, names: Sequence[str], ranges: Any) -> pa.Table:
        read_rows.append(ranges.row_count)
        return read(segment, names, ranges)

    draw = random.Random(1)
    lots = [[drawn_fragment(key, draw) for key in range(start, start + 64)] for start in range(0, 64 * count, 64)]
    keys = {fragment_key(fragment.partition_key, fragment.path) for lot in lots for fragment in lot}
    monkeypatch.setattr(fragment_segments.LargeSegment, "read", counted)
    store = ObjectStore(str(tmp_path))
    files = update_index(store, None, map(rows_of, lots), KeyChanges(keys, set(), len(keys), may_merge=True))
    # All batches but the last one are read back, in windows that together have at most 256 rows.
    assert sum(read_rows) == 64 * (count - 1)
    assert max(read_rows) * (count - 1) <= 256
    result = IndexReader(store, files).find(keys).fragments(("path",))
    assert len(result) == len(keys)


def test_no_commit_rewrites_a_large_index(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit to an index of 300 fragments writes at most 250 rows, and leaves at most ten segments.

    Lookups are correct while segments are being merged.
    """
    monkeypatch.setattr(segment_levels, "_BASE_GROWTH", 4)
    draw = random.Random(2)
    store = ObjectStore(str(tmp_path))
    now = {}
    for key in range(300):
        fragment = drawn_fragment(key, draw)
        now[fragment_key(fragment.partition_key, fragment.path)] = fragment
    files = update_index(
        store, None, [rows_of(list(now.values()))], KeyChanges(now.keys(), (), len(now), may_merge=True)
    )
    first = {*files.paths()}
    absorbing_commits = 0
    for _ in range(24):
        added_fragments = [drawn_fragment(draw.randrange(300, 9_000), draw) for _ in range(4)]
        by_key = {fragment_key(fragment.partition_key, fragment.path): fragment for fragment in added_fragments}
        replaced_keys = now.keys() & by_key.keys()
        removed_keys = {draw.choice([*now])} - by_key.keys()
        now = {key: fragment for key, fragment in {**now, **by_key}.items() if key not in removed_keys}
        before = {*files.paths()}
        changes = KeyChanges(by_key.keys(), removed_keys, len(now), may_merge=True)
        files = update_index(store, files, [rows_of([*by_key.values()])], changes, replaced_keys)
        assert sum(file.rows for file in files.files if file.path not in before) <= 250
        assert len(files.segments) <= 10
        if any(file.absorbed for file in files.files):
            absorbing_commits += 1
            if absorbing_commits == 3:
                check(store, files, now, draw)
    assert absorbing_commits >= 3
    assert len(first & {*files.paths()}) < len(first)


def test_a_lookup_opens_only_files_that_may_match(tmp_path: Any) -> None:
    draw = random.Random(3)
    store = ObjectStore(str(tmp_path))
    fragments = [drawn_fragment(key, draw) for key in range(400)]
    rows = rows_of(fragments)
    files = update_index(store, None, [rows], KeyChanges(rows.keys(), (), len(fragments), may_merge=True))
    assert len(files.files) > 8
    assert len(files.directories) > 1
    schema = pa.schema([(name, cls.arrow) for name, cls in CLASSES.items()])
    table = Table(store, replace(version(files), schema=schema), open_scanner)
    pruning = table.prune("part = 0")
    expected = [fragment.path for fragment in fragments if fragment.partition_key == "part=0" and fragment.rows]
    assert pruning.paths == expected
    # Directories, and the file with the ten fragments of the partition.
    assert pruning.cost.files == 1 + len(files.directories)


def test_a_lookup_parses_only_descriptions_of_row_groups_that_may_match(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup reads row groups of several files together, with one joined Parquet footer for each read.

    A joined footer describes only the row groups that may match.
    """
    draw = random.Random(3)
    store = ObjectStore(str(tmp_path))
    fragments = [drawn_fragment(key, draw) for key in range(400)]
    rows = rows_of(fragments)
    files = update_index(store, None, [rows], KeyChanges(rows.keys(), (), len(fragments), may_merge=True))
    assert len(files.directories) > 2
    schema = pa.schema([(name, cls.arrow) for name, cls in CLASSES.items()])
    table = Table(store, replace(version(files), schema=schema), open_scanner)
    group_counts: list[int] = []
    open_parquet = joined_parquet.open_parquet

    def counted(source: Any, uri: str, metadata: pq.FileMetaData) -> Any:
        group_counts.append(metadata.num_row_groups)
        return open_parquet(source, uri, metadata)

    monkeypatch.setattr(joined_parquet, "open_parquet", counted)
    assert table.prune("part = 0").fragment_count > 0
    assert len(group_counts) == 1
    assert table.prune("part in (0, 11, 25, 9)").paths
    # Bounds are read from files of two schemas, then paths.
    assert len(group_counts) <= 4
    assert table.prune("part >= 0").paths
    assert max(group_counts[:4]) * 3 < group_counts[-1]


def test_paths_in_several_directories_need_no_keys(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths of a prune are in the order of the fragments' keys, although only the paths are read.

    The index has one segment, which stores the fragments in this order, and several directories.
    """
    draw = random.Random(3)
    store = ObjectStore(str(tmp_path))
    fragments = [drawn_fragment(key, draw) for key in range(400)]
    rows = rows_of(fragments)
    files = update_index(store, None, [rows], KeyChanges(rows.keys(), (), len(fragments), may_merge=True))
    assert len(files.directories) > 2
    schema = pa.schema([(name, cls.arrow) for name, cls in CLASSES.items()])
    table = Table(store, replace(version(files), schema=schema), open_scanner)
    pruning = table.prune("part in (0, 11, 25, 9)")
    expected = [
        fragment.path
        for key, fragment in sorted((fragment_key(each.partition_key, each.path), each) for each in fragments)
        if fragment.partition_key in ("part=0", "part=11", "part=25", "part=9") and fragment.rows
    ]

    read = fragment_segments.LargeSegment.read
    names_read: set[str] = set()

    def recording(segment: Any, names: Sequence[str], ranges: Any) -> pa.Table:
        names_read.update(names)
        return read(segment, names, ranges)

    monkeypatch.setattr(fragment_segments.LargeSegment, "read", recording)
    assert pruning.paths == expected
    assert names_read <= {"path"}
