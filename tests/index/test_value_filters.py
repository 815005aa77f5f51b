"""After any commits, stored value filters match every value of their fragment.

A value filter stores the first bits of the hashes of a column's values in one fragment.

A fragment is a unit of rows that a commit adds or removes, such as a data file. A type class is a group of column types
whose values are stored as one Arrow type.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.index import value_filters
from metastore_assets.index.value_filters import ValueFilterReader, ValueFilters, update_value_filters
from metastore_assets.statistics.value_filter import build_filter, parse_filters
from metastore_assets.store import segment_levels
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import KeyChanges, SegmentFiles
from metastore_assets.values.types import class_named

COLUMNS = ("a", "b.c d")
INT, TEXT = class_named("int64"), class_named("string")


def hashes_of(number: int, column: str) -> list[int]:
    draw = random.Random(f"{number} {column}")
    return [draw.getrandbits(64) for _ in range(draw.choice([0, 1, 5, 60]))]


def class_of(number: int) -> str | None:
    return (None, "int64", "int64", "string")[number % 4]


def lots(numbers: dict[str, int], size: int) -> Iterator[ValueFilters]:
    """Yield the value filters of fragments, at most `size` fragments at a time.

    `numbers` has a number for each fragment, by name. The number determines the type class and the hashes of the
    fragment's values.
    """
    names = sorted(numbers)
    for start in range(0, len(names), size):
        part = names[start : start + size]
        filters_by_column = {}
        for column in COLUMNS:
            classes = [class_of(numbers[name]) for name in part]
            retained_filters = [
                None if cls is None else build_filter(np.array(hashes_of(numbers[name], column), np.uint64))
                for name, cls in zip(part, classes, strict=True)
            ]
            filters_by_column[column] = pa.array(classes, pa.string()), parse_filters(retained_filters)
        yield ValueFilters(pa.array(part, pa.large_string()), filters_by_column)


def bits_of(hashes: Sequence[int]) -> int:
    """Return the number of bits that a filter of these hashes stores per hash."""
    return max(18, 7 + max(0, len(hashes) - 1).bit_length())


def prefixes_of(hashes: Sequence[int]) -> set[int]:
    """Return the distinct hash prefixes that a filter stores."""
    return {hash_ >> (64 - bits_of(hashes)) for hash_ in hashes}


@settings(max_examples=6, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 20), st.integers(0, 10**6), max_size=9),
            st.sets(st.integers(0, 20), max_size=5),
        ),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([256, 256 << 10]),
    st.sampled_from([4, 10**9]),
    st.sampled_from([3, 4096]),
)
def test_a_filter_never_excludes_a_fragment_with_the_value(
    commits: Sequence[tuple[dict[int, int], set[int]]], slice_bytes: int, lot: int, file_rows: int
) -> None:
    """A value filter matches a hash exactly if the fragment has a value with the same hash prefix.

    If the requested value and the filter have different type classes, the filter matches every hash. Filters are read
    in slices or completely, from files of any size, after commits in batches.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_filters, "_MIN_SLICE_BYTES", slice_bytes)
        patch.setattr(value_filters, "_MIN_FILTER_BYTES", 1)
        patch.setattr(value_filters, "_KIND", replace(value_filters._KIND, file_rows=file_rows))
        patch.setattr(value_filters, "_GROUP_ROWS", min(2, file_rows))
        patch.setattr(segment_levels, "_BASE_GROWTH", 100)
        patch.setattr(segment_levels, "_MAX_WAITING", 1)
        store = ObjectStore(folder)
        now: dict[str, int] = {}
        files: SegmentFiles | None = None
        for received_numbers, removed_names in commits:
            changed_numbers = {f"f{key}": number for key, number in received_numbers.items()}
            removed_names = {f"f{key}" for key in removed_names if f"f{key}" in now and key not in received_numbers}
            now = {name: number for name, number in {**now, **changed_numbers}.items() if name not in removed_names}
            files = update_value_filters(
                store,
                files,
                KeyChanges(changed_numbers.keys(), removed_names, len(now), may_merge=len(changed_numbers) % 3 > 0),
                lots(changed_numbers, lot),
            )
            reader = ValueFilterReader(store, files)
            assert sorted(reader.keys.to_pylist()) == sorted(now)
            assert {info.path for info in store.list()} >= set(files.paths())
        draw = random.Random(len(now))
        assert files is not None
        for column in COLUMNS if now else ():
            numbers_with_class = {name: hashes for name, hashes in now.items() if class_of(hashes) is not None}
            assert {name: len(prefixes) for name, (_, _, prefixes) in reader.filters(column).items()} == {
                name: len(prefixes_of(hashes_of(file_number, column)))
                for name, file_number in numbers_with_class.items()
            }
            some = [hashes for number in numbers_with_class.values() for hashes in hashes_of(number, column)[:1]]
            for requested_hash in [draw.getrandbits(64), *some[:5]]:
                for cls in (INT, TEXT):
                    result = dict(
                        zip(
                            reader.keys.to_pylist(),
                            reader.may_contain(column, cls, [requested_hash], reader.keys).tolist(),
                            strict=True,
                        )
                    )
                    for name, number in now.items():
                        hashes = hashes_of(number, column)
                        is_held = requested_hash >> (64 - bits_of(hashes)) in prefixes_of(hashes)
                        assert result[name] == (is_held or class_of(number) != cls.name)
                    chosen_names = draw.sample(sorted(now), draw.randrange(len(now) + 1))
                    mask = reader.may_contain(column, cls, [requested_hash], pa.array(chosen_names, pa.large_string()))
                    assert mask.tolist() == [result[name] for name in chosen_names]
            together = [draw.getrandbits(64), *some]
            each = np.array(
                [reader.may_contain(column, INT, [requested_hash], reader.keys) for requested_hash in together]
            )
            assert reader.may_contain(column, INT, together, reader.keys).tolist() == each.any(axis=0).tolist()


def test_a_lookup_reads_the_files_of_the_requested_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files of value filters are deleted, except the one with the requested fragment.

    The lookup succeeds, because it opens no other file.
    """
    store = ObjectStore(str(tmp_path))
    monkeypatch.setattr(value_filters, "_KIND", replace(value_filters._KIND, file_rows=10))
    numbers = {f"f{at:03}": 1 for at in range(100)}
    files = update_value_filters(store, None, KeyChanges(numbers, (), 100, may_merge=True), lots(numbers, 10**9))
    assert len(files.files) == 10
    needed_paths = [file.path for file in files.files if str(file.first) <= "f042" <= str(file.last)]
    assert len(needed_paths) == 1
    store.delete([file.path for file in files.files if file.path not in needed_paths])
    reader = ValueFilterReader(store, files)
    (hash_, *_) = hashes_of(1, "a")
    keys = pa.array(["f042"], pa.large_string())
    assert reader.may_contain("a", INT, [hash_], keys).tolist() == [True]
    assert reader.may_contain("a", INT, [hash_ ^ (1 << 50)], keys).tolist() == [False]
    assert reader.may_contain("a", INT, [], pa.array([], pa.large_string())).tolist() == []
