"""Each section of a file is read as it was written, at the cost of its row groups only.

A section is a named range of rows of a Parquet file. A compact footer is a short form of the file's footer. A constant
column has one value in all rows, and is stored only in the file's metadata.
"""

from __future__ import annotations

import json
import random
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError
from metastore_assets.store.compact_footers import CompactFooterRange
from metastore_assets.store.keys import KeyPrefixes, KeySet
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.remote import RemoteObjects
from metastore_assets.store.sections import (
    CONSTANTS,
    CONSTANTS_CRC,
    SECTIONS,
    RowGroupCache,
    SectionOptions,
    SectionReader,
    SectionWriter,
)

SCHEMA = pa.schema([("name", pa.string()), ("value", pa.struct([("int64", pa.int64())])), ("row", pa.int64())])
SIZES = st.sampled_from([0, 1, 3, 100, 4095, 4096, 4097, 9000, 40_000, 131_071, 131_072, 131_073, 300_000])


def rows(name: str, start: int, count: int) -> pa.Table:
    """Return `count` rows of a section, from position `start`.

    A row has the section's name and its own position.
    """
    numbers = pa.array(range(start, start + count), pa.int64())
    value = pa.StructArray.from_arrays([numbers], ["int64"])
    names = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), [name]).cast(pa.string())
    return pa.Table.from_arrays([names, value, numbers], schema=SCHEMA)


def write(store: ObjectStore, sizes: dict[str, int], piece: int = 10**9) -> None:
    with SectionWriter(store, "file", SCHEMA) as writer:
        for name, size in sizes.items():
            for start in range(0, max(1, size), piece):
                writer.write_section(name, rows(name, start, min(piece, size - start)))


def groups(store: ObjectStore) -> list[int]:
    metadata = store.open_parquet("file").metadata
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), SIZES, max_size=4),
    st.sampled_from([1000, 5000, 131_072, 10**9]),
    st.sampled_from([0, 1, 10, 4096, 5000, 200_000]),
)
def test_every_section_is_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, sizes: dict[str, int], piece: int, limit: int
) -> None:
    """A section may have any neighbours and be written in several pieces.

    Any number of its first rows can be read.
    """
    store = ObjectStore(str(tmp_path_factory.mktemp("root")))
    write(store, sizes, piece)
    assert all(0 < count <= 131_072 for count in groups(store))
    assert store.open_parquet("file").metadata.num_rows == sum(sizes.values())
    with SectionReader(store, "file") as reader:
        assert {name: section.row_count for name, section in reader.sections.items()} == sizes
        assert list(reader.sections) == list(sizes), "in file order"
        for name, size in sizes.items():
            assert reader.read_section(name).equals(rows(name, 0, size))
            assert reader.read_section(name, limit).equals(rows(name, 0, min(size, limit)))
            expected = list(range(min(size, limit)))
            assert reader.read_section(name, limit, ["row"]).to_pydict() == {"row": expected}


@pytest.mark.long
@given(st.lists(SIZES, max_size=5))
def test_large_sections_share_no_row_group(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    store = ObjectStore(str(tmp_path_factory.mktemp("root")))
    write(store, {str(i): size for i, size in enumerate(sizes)})
    file = store.open_parquet("file")
    for i in range(file.num_row_groups):
        names = file.read_row_group(i, columns=["name"]).column("name").unique().to_pylist()
        large = [name for name in names if sizes[int(name)] >= 4096]
        assert len(names) == 1 if large else sum(sizes[int(name)] for name in names) < 2 * 4096


def test_small_sections_share_row_groups(local_store: ObjectStore) -> None:
    """Small neighbouring sections share a row group until it has at least 4,096 rows.

    A section with more rows begins a new row group. In each of the two largest sections, the first 4,096 rows are a row
    group.
    """
    write(local_store, {"a": 1000, "b": 2000, "c": 2000, "d": 10, "e": 5000, "f": 40_000, "g": 300_000, "h": 7})
    assert groups(local_store) == [5000, 10, 5000, 4096, 35_904, 4096, 131_072, 131_072, 33_760, 7]


def test_other_engines_find_the_sections(local_store: ObjectStore) -> None:
    write(local_store, {"a": 3, "é": 0, "c": 5000})
    metadata = local_store.open_parquet("file").metadata.metadata
    assert json.loads(metadata[SECTIONS.encode()]) == [["a", 0, 3], ["é", 3, 0], ["c", 3, 5000]]
    assert b"ARROW:schema" in metadata


def test_a_file_may_have_no_sections(local_store: ObjectStore) -> None:
    write(local_store, {})
    with SectionReader(local_store, "file") as reader:
        assert reader.sections == {}
        with pytest.raises(KeyError):
            reader.read_section("a")


def test_a_section_must_be_written_contiguously(local_store: ObjectStore) -> None:
    def write_again() -> None:
        with SectionWriter(local_store, "file", SCHEMA) as writer:
            for name in ["a", "b", "a"]:
                writer.write_section(name, rows(name, 0, 1))

    with pytest.raises(ValueError, match=r"'a'.*/file\b"):
        write_again()
    assert local_store.list() == []


def test_a_failed_writer_leaves_no_section(store: ObjectStore) -> None:
    with pytest.raises(RuntimeError, match="stop"), SectionWriter(store, "file", SCHEMA) as writer:  # noqa: PT012
        writer.write_section("a", rows("a", 0, 200_000))
        raise RuntimeError("stop")
    assert store.list() == []


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, rf"\b{SECTIONS}\b"),
        ({SECTIONS: "nonsense"}, r"\bline 1 column 1\b"),
        ({SECTIONS: "[1]"}, r"\bint\b"),
        ({SECTIONS: '[["a", 0, 9]]'}, r"\brows\b"),
    ],
)
def test_a_file_without_a_valid_list_of_sections_is_refused(
    local_store: ObjectStore, metadata: dict[str, str], reason: str
) -> None:
    with local_store.parquet_writer("file", SCHEMA) as writer:
        writer.write_table(rows("a", 0, 10))
        writer.add_metadata(metadata)
    with pytest.raises(CorruptionError, match=rf"/file .*\bsections \(.*{reason}.*\)"):
        SectionReader(local_store, "file")


def test_damage_in_a_section_names_the_file(local_store: ObjectStore) -> None:
    write(local_store, {"a": 5000, "b": 5000})
    data = bytearray(local_store.read("file"))
    data[4:300] = random.Random(0).randbytes(296)
    local_store.write("file", bytes(data))
    with SectionReader(local_store, "file") as reader:
        with pytest.raises(CorruptionError, match=r"/file\b"):
            reader.read_section("a")
        assert reader.read_section("b").num_rows == 5000


@pytest.mark.s3
def test_reading_a_section_reads_only_its_row_groups(s3_store: ObjectStore, read_sizes: list[int]) -> None:
    """A section of a file of 8 MB with 400 sections is read in at most two requests, of less than 60 kB.

    Opening the file reads less than 300 kB.
    """
    schema = pa.schema([("name", pa.string()), ("value", pa.int64())])
    numbers = random.Random(1)
    with SectionWriter(s3_store, "file", schema) as writer:
        for i in range(400):
            values = [numbers.getrandbits(60) for _ in range(5000 if i % 2 else 100)]
            writer.write_section(f"c{i}", pa.table({"name": [f"c{i}"] * len(values), "value": values}))
    assert s3_store.list()[0].size > 8_000_000
    with SectionReader(s3_store, "file") as reader:
        assert sum(read_sizes) < 300_000, "the footer"
        for name, size in {"c201": 5000, "c200": 100}.items():
            read_sizes.clear()
            assert reader.read_section(name).column("name").to_pylist() == [name] * size
            assert sum(read_sizes) < 60_000
            assert len(read_sizes) <= 2


@pytest.mark.s3
def test_exactly_a_large_footer_is_read(s3_store: ObjectStore, read_sizes: list[int]) -> None:
    """If the footer's size is known, opening the file reads only the footer.

    A lookup takes one more request.
    """
    schema = pa.schema([(f"c{at}", pa.string()) for at in range(20)])
    with SectionWriter(s3_store, "file", schema, SectionOptions(None, ["c0"], 100, 100)) as writer:
        for start in range(0, 2000, 100):
            column = [f"{at:06}" for at in range(start, start + 100)]
            writer.write_section("rows", pa.table([column] * 20, schema))
    assert 1 << 14 < writer.footer_bytes < 1 << 16
    with SectionReader(s3_store, "file", writer.footer_bytes) as reader:
        assert read_sizes == [writer.footer_bytes]
        rows = reader.find_rows(KeySet(["000150"]), ["rows"])["rows"]
        assert rows.to_pylist() == [dict.fromkeys(schema.names, "000150")]
        assert len(read_sizes) == 2


def test_a_key_is_found_in_a_large_row_group_that_sections_share(local_store: ObjectStore) -> None:
    """Two sections share a row group, so its keys are sorted within each section only.

    Each key is found in its section.
    """
    schema = pa.schema([("key", pa.string()), ("value", pa.string())])
    with SectionWriter(local_store, "file", schema) as writer:
        writer.write_section("rows", pa.table([["b", "c"], ["", "x" * (5 << 20)]], schema))
        writer.write_section("tombstones", pa.table([["a"], [""]], schema))
    with SectionReader(local_store, "file") as reader:
        matches = {key: reader.find_rows(KeySet([key]), ["rows", "tombstones"]) for key in "abcd"}
    counts = {key: (len(sections["rows"]), len(sections["tombstones"])) for key, sections in matches.items()}
    assert counts == {"a": (0, 1), "b": (1, 0), "c": (1, 0), "d": (0, 0)}


@pytest.mark.s3
def test_a_key_in_a_cached_large_row_group_is_found_without_a_request(
    s3_store: ObjectStore, read_sizes: list[int]
) -> None:
    """A row group of 6 MB is read once.

    Later lookups of its keys, and of keys that it lacks, read nothing.

    This also holds after the reader has closed the file, as lookups in many files do.
    """
    schema = pa.schema([("key", pa.string()), ("value", pa.string())])
    values = [random.Random(key).randbytes(25).hex() for key in range(100_000)]
    with SectionWriter(s3_store, "file", schema) as writer:
        writer.write_section("rows", pa.table([[f"{key:06}" for key in range(0, 200_000, 2)], values], schema))
    with SectionReader(s3_store, "file", cache=RowGroupCache(64 << 20)) as reader:
        rows = reader.find_rows(KeySet(["100150"]), ["rows"])["rows"]
        reader.release()
        read_sizes.clear()
        assert reader.find_rows(KeySet(["100150"]), ["rows"])["rows"] == rows
        assert len(reader.find_rows(KeySet(["100152", "100153"]), ["rows"])["rows"]) == 1
        assert read_sizes == []


@pytest.mark.s3
def test_a_cached_section_is_read_again_without_a_request(s3_store: ObjectStore, read_sizes: list[int]) -> None:
    """A cached section is read again without a request, even after the reader released the footer.

    The end of the file is no longer cached either.
    """
    write(s3_store, {"a": 5000})
    backend = s3_store._backend
    assert isinstance(backend, RemoteObjects)
    with SectionReader(s3_store, "file") as reader:
        section = reader.read_section("a")
        reader.release()
        backend._tails.clear()
        read_sizes.clear()
        assert reader.read_section("a") == section
        assert read_sizes == []


@pytest.mark.parametrize("limit", [0, 1, None])
def test_a_cache_has_at_most_its_number_of_row_groups(limit: int | None) -> None:
    cache = RowGroupCache(1 << 20, limit)
    for number in range(3):
        cache.put((number,), rows("a", 0, 1))
    assert [cache.get((number,)) is not None for number in range(3)] == [
        limit is None or number >= 3 - limit for number in range(3)
    ]


@pytest.mark.s3
def test_the_compact_footer_is_read_instead_of_the_footer(s3_store: ObjectStore, read_sizes: list[int]) -> None:
    """A reader that knows the position of the compact footer does not read the footer of the file.

    It reads the compact footer, and then each row group that a lookup needs, once. Readers without the position can
    open the file, too. A damaged compact footer raises CorruptionError, which names the file.
    """
    schema = pa.schema([(f"c{at}", pa.string()) for at in range(20)])
    options, numbers = SectionOptions(None, ["c0"], 100, 100, adds_compact_footer=True), random.Random(0)
    with SectionWriter(s3_store, "file", schema, options) as writer:
        for start in range(0, 2000, 100):
            column = [f"{at:06}{numbers.getrandbits(60)}" for at in range(start, start + 100)]
            writer.write_section("rows", pa.table([column] * 20, schema))
    compact, data = writer.compact_footer, s3_store.read("file")
    assert compact is not None
    start, end = compact.start, compact.start + compact.size
    assert 20 * compact.size < len(data) - end
    expected = pq.read_table(pa.BufferReader(data))
    assert expected.num_rows == 2000
    read_sizes.clear()
    with SectionReader(s3_store, "file", cache=RowGroupCache(1 << 20), compact_footer=compact) as reader:
        assert read_sizes == [compact.size]
        for _ in range(2):
            rows = reader.find_rows(KeyPrefixes(["00015", "001999"]), ["rows"])["rows"]
            assert rows.equals(pa.concat_tables([expected.slice(150, 10), expected.slice(1999)]))
            assert len(read_sizes) == 3  # Row groups are cached, and two that are far from each other are two requests.
            reader.release()
        assert reader.read_section("rows").equals(expected.cast(schema))
        assert reader.least_key <= expected["c0"][0].as_py()
        assert reader.schema == schema
    for damaged_footer in (
        bytes(compact.size),
        data[start : end - 1],
        data[start : end - 20] + bytes(20),
        zlib.compress(bytes(compact.size)),
        zlib.compress(b"\2\0\0\0{}"),
        zlib.compress(b"\2\0\0\0[]"),
    ):
        s3_store.write("damaged", data[:start] + damaged_footer + data[end:])
        with pytest.raises(CorruptionError, match=r"/damaged\b"):
            SectionReader(s3_store, "damaged", compact_footer=CompactFooterRange(start, len(damaged_footer)))


@pytest.mark.parametrize(
    ("constants", "reason"),
    [
        ("nonsense", r"\bline 1 column 1\b"),
        ("[1]", rf"\b{CONSTANTS} is a list\b"),
        ("[" * 100_000, r"\bnested\b"),
    ],
    ids=["nonsense", "list", "nested"],
)
def test_a_file_with_an_invalid_list_of_constant_columns_is_refused(
    local_store: ObjectStore, constants: str, reason: str
) -> None:
    """An invalid JSON of constant columns is an error, although its checksum is right."""
    with local_store.parquet_writer("file", SCHEMA) as writer:
        checksum = str(zlib.crc32(constants.encode()))
        writer.add_metadata({SECTIONS: "[]", CONSTANTS: constants, CONSTANTS_CRC: checksum})
    with pytest.raises(CorruptionError, match=rf"/file .*\bconstant columns \(.*{reason}.*\)"):
        SectionReader(local_store, "file")


@pytest.mark.parametrize("checksum", [None, "1", "x"])
def test_a_list_of_constant_columns_without_its_checksum_is_refused(
    local_store: ObjectStore, checksum: str | None
) -> None:
    with local_store.parquet_writer("file", SCHEMA) as writer:
        metadata = {SECTIONS: "[]", CONSTANTS: '{"a": 1}', CONSTANTS_CRC: checksum}
        writer.add_metadata({key: value for key, value in metadata.items() if value is not None})
    with pytest.raises(CorruptionError, match=r"/file .*\bconstant columns\b"):
        SectionReader(local_store, "file")
