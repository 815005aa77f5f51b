"""A compact footer describes the same row groups as the footer of its file.

A compact footer is a short form of a Parquet file's footer, from which the footer of some row groups can be built. It
records bounds of the keys of each row group, unless a key is too long.
"""

from __future__ import annotations

import io
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.store.compact_footers import _MAX_BOUND, CompactFooter, encode_compact_footer
from metastore_assets.store.keys import common_prefix_length, separate_keys
from metastore_assets.store.segment_merge import cut_row_groups

TEXTS = st.text(st.sampled_from("ab\0\U0010ffff"), max_size=4)
SCHEMA = pa.schema(
    [("key", pa.string()), ("text", pa.string()), ("lists", pa.list_(pa.string())), ("count", pa.int64())],
    {"a": "b", "metastore.constants": "ü\0"},
)


@st.composite
def tables(draw: st.DrawFn, key_type: pa.DataType) -> pa.Table:
    """Draw a table with distinct keys in ascending order.

    Keys may be longer than the bounds that a compact footer records.
    """
    prefix = draw(st.sampled_from(["", "", "b" * _MAX_BOUND]))
    keys = sorted(prefix + key for key in draw(st.sets(TEXTS, min_size=1, max_size=30)))
    count = len(keys)
    columns = [
        pa.array([key.encode() if pa.types.is_binary(key_type) else key for key in keys], key_type),
        draw(st.lists(st.none() | TEXTS, min_size=count, max_size=count)),
        draw(st.lists(st.none() | st.lists(st.none() | TEXTS, max_size=3), min_size=count, max_size=count)),
        draw(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), min_size=count, max_size=count)),
    ]
    return pa.table(columns, SCHEMA.set(0, pa.field("key", key_type)))


@given(st.sampled_from([pa.string(), pa.binary()]).flatmap(tables), st.integers(1, 10), st.booleans(), st.data())
def test_the_row_groups_that_a_built_footer_names_are_those_of_the_file(
    table: pa.Table, group_rows: int, has_dictionary: bool, data: st.DataObject
) -> None:
    """A file that is opened with a footer built for some row groups, in any order, has just their rows.

    The compact footer has the numbers of rows, the sizes and the metadata of the file's footer. The bounds that it
    records for a row group include the keys of the row group, and do not overlap with the next row group's.
    """
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group_rows, use_dictionary=has_dictionary, compression="zstd")
    content = sink.getvalue()
    file = pq.ParquetFile(io.BytesIO(content))
    size = int.from_bytes(content[-8:-4], "little")
    groups = [file.metadata.row_group(at) for at in range(file.num_row_groups)]
    parts = [table["key"].slice(start, group_rows).to_pylist() for start in range(0, len(table), group_rows)]
    key_bounds = [(keys[0], keys[-1]) for keys in parts]
    compact = CompactFooter.decode(encode_compact_footer(file.metadata, content[-8 - size : -8], key_bounds))
    assert compact.group_rows == [group.num_rows for group in groups]
    assert compact.group_bytes == [group.total_byte_size for group in groups]
    assert compact.key_value_metadata == file.metadata.metadata
    for bounds, (least, greatest) in zip(compact.key_bounds, key_bounds, strict=True):
        if bounds is None:
            assert max(len(least), len(greatest)) > _MAX_BOUND
        else:
            assert bounds[0] <= least
            assert greatest <= bounds[1]
            assert max(map(len, bounds)) <= _MAX_BOUND
    assert all(one is None or other is None or one[1] < other[0] for one, other in pairwise(compact.key_bounds))
    selected_groups = data.draw(st.lists(st.sampled_from(range(len(groups))), max_size=5))
    with pq.ParquetFile(io.BytesIO(content), metadata=compact.build_footer(selected_groups)) as file_of_footer:
        assert file_of_footer.read().equals(
            pa.concat_tables([table.slice(0, 0), *map(file.read_row_group, selected_groups)])
        )
        assert file_of_footer.schema_arrow == file.schema_arrow


def count_common(one: str | bytes, other: str | bytes) -> int:
    """Return the length of the common prefix, one character or byte at a time."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@given(TEXTS, TEXTS, TEXTS)
def test_the_common_prefix_of_two_keys(prefix: str, one: str, other: str) -> None:
    keys = (prefix + one, prefix + other)
    assert common_prefix_length(*keys) == count_common(*keys)
    encoded_keys = (keys[0].encode(), keys[1].encode())
    assert common_prefix_length(*encoded_keys) == count_common(*encoded_keys)


@given(TEXTS, TEXTS)
def test_separated_keys_are_bounds(last: str, first: str) -> None:
    high, low = separate_keys(last, first)
    assert high >= last
    assert low <= first
    assert len(high) <= len(last)
    assert len(low) <= len(first)
    if last < first:
        assert high < low


@given(tables(pa.string()), st.integers(1, 12), st.lists(st.integers(0, 30), max_size=3))
def test_row_groups_end_between_different_prefixes(table: pa.Table, wanted_rows: int, cuts: list[int]) -> None:
    """Each row group but the last ends where the common prefix of neighbouring keys is shortest.

    A row group may have a third more or fewer rows than `wanted_rows`. If the prefix is shortest at several places, the
    one nearest to `wanted_rows` is chosen. The result does not depend on the pieces in which the rows arrive.
    """
    bounds = [0, *sorted(min(position, len(table)) for position in cuts), len(table)]
    groups = list(cut_row_groups([table.slice(start, end - start) for start, end in pairwise(bounds)], wanted_rows))
    assert pa.concat_tables(groups).equals(table)
    keys, start = table["key"].to_pylist(), 0
    least, most = max(1, wanted_rows * 2 // 3), wanted_rows + wanted_rows // 3
    for group in groups[:-1]:
        places = range(least, most + 1)
        lengths = {place: count_common(keys[start + place - 1], keys[start + place]) for place in places}
        shortest = [place for place in places if lengths[place] == min(lengths.values())]
        assert len(group) in shortest
        assert abs(len(group) - wanted_rows) == min(abs(place - wanted_rows) for place in shortest)
        start += len(group)
    assert 0 < len(groups[-1]) <= most
