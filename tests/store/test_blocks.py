"""Block files: every range of rows of every section is what was written."""

from __future__ import annotations

import random
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError
from metastore_assets.store import blocks
from metastore_assets.store.blocks import BlockReader, BlockWriter, RowRanges
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import TypeClass, class_named

CLASSES = [
    *("boolean", "int64", "uint64", "float64", "string", "binary", "uuid", "date", "time"),
    *("timestamp_ms", "timestamp_us", "timestamptz_ns", "decimal_0", "decimal_7"),
]


def drawn(cls: TypeClass, count: int, draw: random.Random) -> pa.Array:
    """Values of a class: far apart, near each other, or equal, with and without nulls."""
    width = draw.choice([0, 1, 7, 12, 33, 63])
    first = draw.choice([0, -5, 2**62, -(2**62)])

    def value() -> Any:
        number = first + draw.getrandbits(width) if width else first
        if cls.name == "boolean":
            return bool(number % 2)
        if cls.name == "float64":
            return draw.choice([float(number), -0.0, float("inf"), number / 3])
        if cls.kind == "bytes":
            data = ("ä" + str(number)).encode() * draw.randrange(4)
            return data.decode() if cls.name == "string" else (data + bytes(16))[:16] if cls.name == "uuid" else data
        if pa.types.is_decimal(cls.arrow):
            return Decimal(number * draw.choice([1, 1, 10**15])).scaleb(-cls.scale)
        low, high = cls.physical_range
        return min(max(number, low), high)

    share = draw.choice([0, 0, 0.3, 1])
    values = [None if draw.random() < share else value() for _ in range(count)]
    if cls.name == "uuid":
        return pa.ExtensionArray.from_storage(cls.arrow, pa.array(values, pa.binary(16)))
    if pa.types.is_temporal(cls.arrow):
        return pa.array(values, pa.int32() if cls.arrow.bit_width == 32 else pa.int64()).view(cls.arrow)
    return pa.array(values, cls.arrow)


def drawn_ranges(count: int, draw: random.Random) -> RowRanges:
    edges = sorted(draw.sample(range(count + 1), min(count + 1, 2 * draw.randint(0, 4))))
    edges = edges[: len(edges) // 2 * 2]
    return RowRanges(np.array(edges[::2], np.int64), np.array(edges[1::2], np.int64))


def same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    """Whether values are equal bit by bit: -0.0 differs from 0.0."""
    if pa.types.is_floating(left.type):
        left, right = (side.combine_chunks().view(pa.int64()) for side in (left, right))
    return bool(left.equals(right))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 90), st.sampled_from([3, 8]), st.sampled_from([1, 4]))
def test_rows_are_read_as_written(seed: int, count: int, block_rows: int, group_blocks: int) -> None:
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", block_rows)
        patch.setattr(blocks, "_GROUP_BLOCKS", group_blocks)
        patch.setattr(blocks, "_TEXT_ROWS", draw.choice([1, block_rows]) if block_rows % 2 else 4)
        patch.setattr(blocks, "_TAIL_BYTES", draw.choice([20, 1 << 16]))
        store = ObjectStore(folder)
        sections, classes = {}, {}
        with BlockWriter(store, "file") as writer:
            for name in ("a", "b c", "ä"):
                names = draw.sample(CLASSES, draw.randint(1, 4))
                classes[name] = {f"{at}.{cls}": class_named(cls) for at, cls in enumerate(names)}
                sections[name] = pa.table({key: drawn(cls, count, draw) for key, cls in classes[name].items()})
                cuts = sorted(draw.sample(range(count + 1), min(count, 3)))
                parts = [
                    sections[name].slice(start, end - start)
                    for start, end in zip([0, *cuts], [*cuts, count], strict=False)
                ]
                writer.write_section(name, classes[name], parts)
        reader = BlockReader(store, "file")
        assert {name: section.row_count for name, section in reader.sections.items()} == dict.fromkeys(sections, count)
        for ranges in (None, drawn_ranges(count, draw), drawn_ranges(count, draw)):
            positions = list(range(count)) if ranges is None else ranges.positions().tolist()
            chosen = draw.sample(sorted(sections), 2)
            tables = reader.read({name: draw.choice([None, list(classes[name])[:1]]) for name in chosen}, ranges)
            for name, table in tables.items():
                wanted = sections[name].select(table.column_names)
                assert table.num_rows == len(positions)
                for column in table.column_names:
                    assert same(wanted[column].take(pa.array(positions, pa.int64())), table[column])


@given(st.lists(st.booleans(), max_size=40), st.sets(st.integers(0, 45)), st.integers(1, 9))
def test_ranges_are_sets_of_rows(mask: list[bool], removed: set[int], size: int) -> None:
    chosen = [at for at, is_chosen in enumerate(mask) if is_chosen]
    ranges = RowRanges.of_positions(np.array(chosen, np.int64))
    assert ranges.positions().tolist() == chosen
    left = ranges.without(np.array(sorted(removed), np.int64))
    assert left.positions().tolist() == [at for at in chosen if at not in removed]
    windows = list(ranges.windows(size))
    assert RowRanges.concatenate(windows).positions().tolist() == chosen
    assert all(window.row_count <= 3 * size for window in windows)
    by_runs = RowRanges.of_runs(np.ones(len(mask), np.int64), np.array(mask, np.bool_))
    assert by_runs.positions().tolist() == chosen
    assert ranges.filter(np.array([at % 2 == 0 for at in chosen], np.bool_)).positions().tolist() == [
        at for at in chosen if at % 2 == 0
    ]


def test_a_missing_section_is_corrupt(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    with BlockWriter(store, "file") as writer:
        writer.write_section("a", {"x": class_named("int64")}, [])
        with pytest.raises(ValueError, match="'a'"):
            writer.write_section("a", {"x": class_named("int64")}, [])
    with pytest.raises(CorruptionError, match=r"file.*'b'"):
        BlockReader(store, "file").read({"b": None})
