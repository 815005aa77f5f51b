"""String columns are read as the dictionaries that Parquet stores, where that saves memory."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.formats.readers import chunks as reader_chunks
from metastore_assets.formats.readers.chunks import cast_dictionary, decode_dictionary
from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.formats.readers.reader import ColumnMapping, FileFragmentReader
from metastore_assets.formats.schema_casting import FieldMatcher

_STORED = st.sampled_from(
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
)


def _reader(data: pa.Buffer, deleted_positions: list[int] | None = None) -> FileFragmentReader:
    columns = ParquetColumns(pa.BufferReader(data))
    positions = None if deleted_positions is None else np.array(deleted_positions, np.uint64)
    return FileFragmentReader(columns, path="x", mapping=ColumnMapping(FieldMatcher(), {}), deleted_positions=positions)


def _written(table: pa.Table, **options: object) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@given(
    rows=st.lists(st.none() | st.sampled_from(["", "a", "bb", "é"]), max_size=60),
    stored_type=_STORED,
    group=st.integers(1, 40),
    dictionary=st.booleans(),
    data=st.data(),
)
def test_encoded_columns_have_the_same_values(
    rows: list[str | None], stored_type: pa.DataType, group: int, dictionary: bool, data: st.DataObject
) -> None:
    """With and without the option `encoded`, reading a column returns the values of all live rows.

    Row groups have different dictionaries. A chunk is a dictionary array only if it has more than twice as many rows as
    dictionary entries.
    """
    if pa.types.is_dictionary(stored_type):
        array, requested_type = pa.array(rows, pa.string()).dictionary_encode().cast(stored_type), pa.string()
    else:
        array = pa.array([None if row is None else row.encode() for row in rows], pa.binary()).cast(stored_type)
        requested_type = pa.binary() if stored_type == pa.binary() else pa.string()
    written_file = _written(pa.table({"c": array}), row_group_size=group, use_dictionary=dictionary)
    deleted_positions = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    live = [row for at, row in enumerate(array.to_pylist()) if at not in deleted_positions]
    for is_encoded in (False, True):
        chunks = list(_reader(written_file, deleted_positions).read(pa.field("c", requested_type), encoded=is_encoded))
        assert [value for chunk in chunks for value in chunk.to_pylist()] == live
        for chunk in chunks:
            assert len(chunk) > 0
            if isinstance(chunk, pa.DictionaryArray):
                assert is_encoded
                assert chunk.type.value_type == requested_type
                assert 2 * len(chunk.dictionary) < len(chunk)
            else:
                assert chunk.type == requested_type


def test_only_short_dictionaries_are_preserved() -> None:
    """A row group whose writer abandoned its dictionary is read plain, at any position in the file."""
    few, many = ["a", "b"] * 50_000, [f"{number:020}" for number in range(100_000)]
    for order in ([few, many, few], [many, few, many]):
        written_file = _written(
            pa.table({"c": [text for group in order for text in group]}),
            row_group_size=100_000,
            dictionary_pagesize_limit=1 << 18,
            compression="none",
        )
        chunks = list(_reader(written_file).read(pa.field("c", pa.string()), encoded=True))
        are_dictionaries = [pa.types.is_dictionary(chunk.type) for chunk in chunks]
        expected = [group is few for group in order]
        assert [
            kind for at, kind in enumerate(are_dictionaries) if at == 0 or are_dictionaries[at - 1] != kind
        ] == expected
        assert [value for chunk in chunks for value in chunk.to_pylist()] == [text for group in order for text in group]


@pytest.mark.parametrize("type_", ["text", "blob"])
def test_row_groups_in_another_encoding_are_read(tmp_path: Path, type_: str) -> None:
    """A column whose row groups have different encodings is read completely.

    Some have a dictionary, and others the encoding DELTA_LENGTH_BYTE_ARRAY. Arrow returns dictionary arrays only for
    the former.
    """
    path = tmp_path / "x.parquet"
    text = "case when i % 4096 < 2048 then 's' || (i % 3) else 'x' || i end"
    with duckdb.connect() as connection:
        rows = f"select ({text})::{type_} s from range(9000) t(i)"
        connection.execute(f"copy ({rows}) to '{path}' (parquet_version v2, row_group_size 2048)")
        expected = [value for (value,) in connection.execute(rows).fetchall()]
    footer = pq.read_metadata(path)
    encodings = {footer.row_group(group).column(0).encodings for group in range(footer.num_row_groups)}
    assert encodings == {("RLE_DICTIONARY",), ("DELTA_LENGTH_BYTE_ARRAY",)}
    chunks = list(ParquetColumns(pa.OSFile(str(path), "rb")).read(0))
    assert [value for chunk in chunks for value in chunk.to_pylist()] == expected


def test_long_repeated_strings_are_decoded_in_bounded_chunks(tmp_path: Path) -> None:
    """100 MB of rows in a file of a few kilobytes are decoded in bounded chunks.

    With the option `encoded`, the rows are one small chunk.
    """
    texts = pa.array(["x" * 100_000, "y"])
    rows = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 1000, pa.int32()), texts)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"c": rows}), path, store_schema=False)
    assert path.stat().st_size < 20_000
    data = pa.py_buffer(path.read_bytes())
    plain = list(_reader(data).read(pa.field("c", pa.string())))
    assert max(chunk.nbytes for chunk in plain) < reader_chunks.CHUNK_BYTES + 200_000
    assert sum(map(len, plain)) == 2000
    (chunk,) = _reader(data).read(pa.field("c", pa.string()), encoded=True)
    assert chunk.nbytes < 200_000
    assert len(chunk) == 2000


@pytest.mark.parametrize("index", [2, -1, 2**31 - 1])
def test_an_index_out_of_range_is_an_error(index: int) -> None:
    """An index that is not in the dictionary is an error.

    Arrow does not check it, and would crash the process.
    """
    indices = pa.array([0, index], pa.int32())
    broken_array = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    with pytest.raises(pa.ArrowInvalid, match="entries"):
        cast_dictionary(broken_array, pa.string(), FieldMatcher())
    with pytest.raises(pa.ArrowInvalid, match="entries"):
        list(decode_dictionary(broken_array))


def test_an_entry_that_occurs_in_no_row_is_not_converted() -> None:
    """A dictionary is not cast to text if an entry, even one in no row, is not UTF-8.

    Decoding gives the values of the rows.
    """
    array = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, None]), pa.array([b"a", b"\xff"]))
    assert cast_dictionary(array, pa.string(), FieldMatcher()) is None
    assert [value for part in decode_dictionary(array) for value in part.to_pylist()] == [b"a", b"a", b"a", None]
