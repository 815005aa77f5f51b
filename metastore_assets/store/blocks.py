"""Block files: named sections of rows, of which any range of rows can be read alone.

A Parquet footer describes every column chunk of every row group, also of columns without values. For a table of ten
million fragments with row groups of 2,048 rows, it would be larger than the rows. A block file describes 64 blocks of
2,048 rows at once.

    section data, directories of large sections, footer, size and checksum of the footer, `METABLKS`

Each block has a checksum. An integer column stores its least value in the block, and for each row the difference from
it in as few bytes as possible. A row is decoded by numpy, many blocks at a time. Texts are compressed
with zstd, 256 at a time.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.store.backend import Input, Output
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.parquet import parquet_errors
from metastore_assets.store.prefetch import Range, merge_neighbors
from metastore_assets.values.physical import decimal_words, one_chunk
from metastore_assets.values.types import TypeClass, class_named

BLOCK_ROWS = 2048
"""Number of rows of a block, except the last block of a section."""
_GROUP_BLOCKS = 64
"""Maximum number of blocks whose columns have the same widths."""
_INLINE_GROUPS = 2
"""Maximum number of groups of a section that the footer lists. More groups are listed in a separate directory."""
_MAGIC = b"METABLKS"
_TAIL = struct.Struct("<II8s")
_TAIL_BYTES = 1 << 16
_TEXT_ROWS = 256
"""Number of texts that are compressed together. A block has a multiple of it, except the last block of a section."""
_COMPRESS_FROM = 64
"""Minimum size in bytes of texts that are compressed."""
_ALL_VALID, _SOME_VALID, _NONE_VALID = range(3)

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Rows: TypeAlias = "Numbers | slice[int | None]"


@dataclass(frozen=True)
class RowRanges:
    """Ascending, disjoint ranges of rows."""

    starts: Numbers
    """First row of each range."""
    ends: Numbers
    """The row after the last row of each range."""

    @classmethod
    def of_runs(cls, sizes: Numbers, mask: Mask) -> RowRanges:
        """Return the ranges of selected runs of rows. Adjacent runs become one range.

        Args:
            sizes: The number of rows of each run. The runs follow each other from row 0.
            mask: The selected runs.
        """
        ends = np.cumsum(sizes)
        edges = np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))
        first, last = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
        return cls((ends - sizes)[first], ends[last])

    @property
    def row_count(self) -> int:
        """Number of rows in all ranges."""
        return int((self.ends - self.starts).sum())

    @classmethod
    def of_positions(cls, positions: Numbers) -> RowRanges:
        """Return the ranges of ascending positions."""
        breaks = np.flatnonzero(np.diff(positions) > 1)
        firsts = np.concatenate([positions[:1], positions[breaks + 1]])
        return cls(firsts, np.concatenate([positions[breaks], positions[-1:]]) + 1)

    @classmethod
    def concatenate(cls, parts: Sequence[RowRanges]) -> RowRanges:
        """Return the ranges of several parts, of which each is after the one before."""
        none = np.zeros(0, np.int64)
        starts, ends = [part.starts for part in parts], [part.ends for part in parts]
        return cls(np.concatenate([none, *starts]), np.concatenate([none, *ends]))

    def without(self, positions: Numbers) -> RowRanges:
        """Return the ranges without some rows, given their ascending positions."""
        at = np.searchsorted(self.starts, positions, "right") - 1
        if not len(self.starts) or not len(positions):
            return self
        removed = positions[(at >= 0) & (positions < self.ends[at])]
        starts = np.sort(np.concatenate([self.starts, removed + 1]))
        ends = np.sort(np.concatenate([self.ends, removed]))
        is_filled = ends > starts
        return RowRanges(starts[is_filled], ends[is_filled])

    def filter(self, mask: Mask) -> RowRanges:
        """Return the ranges of the rows for which a mask is true."""
        return RowRanges.of_positions(self.positions()[mask])

    def windows(self, rows: int) -> Iterator[RowRanges]:
        """Yield the ranges in parts of about `rows` rows, which share no block if the ranges are long."""
        counts = self.ends - self.starts
        if len(counts) == 1:
            first, end = int(self.starts[0]), int(self.ends[0])
            stops = [*range(first // rows * rows + rows, end, rows), end]
            for start, stop in zip([first, *stops], stops, strict=False):
                yield RowRanges(np.array([start]), np.array([stop]))
            return
        edges = np.flatnonzero(np.diff(np.cumsum(counts) // rows, append=-1)) + 1
        for first, last in zip([0, *edges.tolist()], edges.tolist(), strict=False):
            part = RowRanges(self.starts[first:last], self.ends[first:last])
            if part.row_count > 2 * rows:
                yield from (
                    window
                    for start, end in zip(part.starts.tolist(), part.ends.tolist(), strict=True)
                    for window in RowRanges(np.array([start]), np.array([end])).windows(rows)
                )
            else:
                yield part

    def positions(self) -> Numbers:
        """Return the positions of all rows, ascending."""
        counts = self.ends - self.starts
        firsts = np.cumsum(counts) - counts
        return np.repeat(self.starts - firsts, counts) + np.arange(int(counts.sum()))

    def blocks(self) -> Numbers:
        """Return the numbers of the blocks that have these rows, ascending."""
        first, last = self.starts // BLOCK_ROWS, (self.ends - 1) // BLOCK_ROWS + 1
        is_filled = self.ends > self.starts
        return np.unique(RowRanges(first[is_filled], last[is_filled]).positions())


@dataclass(frozen=True)
class Section:
    """One section of a block file."""

    row_count: int
    columns: Mapping[str, TypeClass]
    """The type class of each column, whose canonical type the values have."""


@dataclass(frozen=True)
class _Group:
    """Consecutive blocks of a section. All of them have the same number of rows and the same widths of columns."""

    offset: int
    row_count: int
    widths: tuple[tuple[int, ...], ...]
    """For each column: whether all, some or no values are valid; then the widths in bytes of its numbers."""
    sizes: tuple[int, ...]
    """Size of each block in bytes. Only one size if all blocks have the same."""

    @property
    def block_count(self) -> int:
        return max(1, -(-self.row_count // BLOCK_ROWS))

    @property
    def block_rows(self) -> int:
        return min(BLOCK_ROWS, self.row_count)

    def block_range(self, block: int) -> Range:
        """Return the byte range of a block of the group."""
        if len(self.sizes) == 1:
            start = self.offset + block * self.sizes[0]
            return start, start + self.sizes[0]
        start = self.offset + sum(self.sizes[:block])
        return start, start + self.sizes[block]


class BlockWriter:
    """A context manager that writes a block file. The file becomes visible if the block ends without an error."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._stack = ExitStack()
        self._sink: Output
        self._sections: dict[str, list[Any]] = {}

    def __enter__(self) -> BlockWriter:
        self._sink = self._stack.enter_context(self._store.create(self._path))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is not None:
                self._stack.__exit__(kind, error, trace)
                return
            for section in self._sections.values():
                if len(section[2]) > _INLINE_GROUPS:
                    section[2] = self._write_json(section[2])
            _, size = self._write_json(self._sections)
            self._sink.write(_TAIL.pack(size, self._checksum, _MAGIC))

    def write_section(self, name: str, columns: Mapping[str, TypeClass], tables: Iterable[pa.Table]) -> None:
        """Append a section.

        Args:
            name: Name of the section.
            columns: The type class of each column.
            tables: The rows. Columns have the canonical types of their classes; a column that a table lacks is null.

        Raises:
            ValueError: A section of that name exists.
        """
        if name in self._sections:
            raise ValueError(f"section {name!r} of {self._store.uri(self._path)} exists")
        groups: list[Any] = []
        row_count = 0
        for table in _regroup((_complete(table, columns) for table in tables), _GROUP_BLOCKS * BLOCK_ROWS):
            row_count += table.num_rows
            full = table.num_rows // BLOCK_ROWS * BLOCK_ROWS
            for part in (table.slice(0, full), table.slice(full)):
                if part.num_rows:
                    groups.append(self._write_group(columns, part))
        self._sections[name] = [row_count, [[column, cls.name] for column, cls in columns.items()], groups]

    def _write_group(self, columns: Mapping[str, TypeClass], table: pa.Table) -> list[Any]:
        """Write rows as blocks; return the description of the group."""
        encoded = [_encode(one_chunk(table[name]), cls) for name, cls in columns.items()]
        rows = min(BLOCK_ROWS, len(table))
        count = len(table) // rows
        pieces: list[Bytes] = [np.zeros((count, 0), np.uint8)]
        widths = []
        for column in encoded:
            column_widths = [column.validity]
            if column.valid is not None and column.validity == _SOME_VALID:
                pieces.append(np.packbits(column.valid.reshape(count, rows), axis=1, bitorder="little"))
            for numbers in column.numbers:
                width, parts = _pack_numbers(numbers.reshape(count, rows))
                column_widths.append(width)
                pieces += parts
            widths.append(column_widths)
        fixed = np.concatenate(pieces, axis=1)
        texts = [column.texts.cut(count, rows) for column in encoded if column.texts is not None]
        offset, sizes = self._sink.tell(), []
        for number in range(count):
            heaps = [_compress(part) for parts in texts for part in parts[number]]
            lengths = struct.pack(f"<{len(heaps)}I", *map(len, heaps))
            body = b"".join([lengths, fixed[number].tobytes(), *heaps])
            sizes.append(self._sink.write(zlib.crc32(body).to_bytes(4, "little") + body))
        return [offset, len(table), widths, sizes[:1] if len(set(sizes)) == 1 else sizes]

    def _write_json(self, value: object) -> tuple[int, int]:
        """Write a value as compressed JSON; return its position and size, and remember its checksum."""
        data = zlib.compress(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), 1)
        offset = self._sink.tell()
        self._sink.write(data)
        self._checksum = zlib.crc32(data)
        return offset, len(data)


class BlockReader:
    """A reader of one block file. Opening it reads the footer. Threads can share it.

    Damaged files raise CorruptionErrors.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        self.uri = store.uri(path)
        self._lock = Lock()
        self._groups: dict[str, list[_Group]] = {}
        with _corruption(self.uri):
            self._input: Input = store.open(path)
            self._size = self._input.file.size()
            self._footer = self._read_footer()
            self.sections = {
                name: Section(int(rows), {column: class_named(cls) for column, cls in columns})
                for name, (rows, columns, _) in self._footer.items()
            }

    def read(
        self,
        sections: Mapping[str, Collection[str] | None],
        ranges: RowRanges | None = None,
        following: Collection[str] = (),
    ) -> dict[str, pa.Table]:
        """Return rows of several sections by name, from few parallel reads.

        Args:
            sections: The columns to return of each section; None for all columns.
            ranges: The rows; None for all rows.
            following: Sections that are read next. Their directories are read along with the rows.

        Raises:
            KeyError: There is no such section.
        """
        with _corruption(self.uri):
            self._load_groups(sections)
            blocks = None if ranges is None else ranges.blocks()
            selections = {name: self._select(name, blocks) for name in sections}
            wanted = [range_ for parts in selections.values() for part in parts for range_ in part.ranges]
            directories = self._directories(name for name in following if name in self._footer)
            data = self._read_ranges([*wanted, *directories.values()])
            self._parse_groups(directories, data)
            rows: Rows = slice(None)
            if ranges is not None and blocks is not None:
                rows = _positions_in_blocks(ranges, blocks)
            tables = {}
            for name, columns in sections.items():
                decoder = _Decoder(self.sections[name].columns, columns)
                for part in selections[name]:
                    decoder.add(part, [data[range_] for range_ in part.ranges])
                tables[name] = decoder.table(rows)
            return tables

    def _select(self, name: str, blocks: Numbers | None) -> list[_Part]:
        """Return the selected blocks of a section, group by group."""
        parts, first = [], 0
        for group in self._groups[name]:
            numbers: Sequence[int] = range(group.block_count)
            if blocks is not None:
                low, high = np.searchsorted(blocks, [first, first + group.block_count])
                numbers = (blocks[low:high] - first).tolist()
            if len(numbers):
                parts.append(_Part(group, [group.block_range(number) for number in numbers]))
            first += group.block_count
        return parts

    def _load_groups(self, sections: Iterable[str]) -> None:
        """Read the directories of sections whose groups are not known yet. Raises KeyError for an unknown section."""
        directories = self._directories(sections)
        self._parse_groups(directories, self._read_ranges(list(directories.values())))

    def _directories(self, sections: Iterable[str]) -> dict[str, Range]:
        """Return the byte ranges of the directories of sections whose groups are not known yet."""
        directories = {}
        for name in sections:
            value = self._footer[name][2]
            if name in self._groups:
                continue
            if value and not isinstance(value[0], list):
                directories[name] = int(value[0]), int(value[0]) + int(value[1])
            else:
                self._groups[name] = _parse_groups(value)
        return directories

    def _parse_groups(self, directories: Mapping[str, Range], data: Mapping[Range, memoryview]) -> None:
        for name, range_ in directories.items():
            self._groups[name] = _parse_groups(json.loads(zlib.decompress(data[range_])))

    def _read_footer(self) -> dict[str, Any]:
        size = min(self._size, _TAIL_BYTES)
        tail = self._read_range((self._size - size, self._size))
        footer_size, checksum, magic = _TAIL.unpack(tail[-_TAIL.size :])
        if magic != _MAGIC or footer_size + _TAIL.size > self._size:
            raise ValueError("it is no block file")
        end = self._size - _TAIL.size
        data = (
            tail[-footer_size - _TAIL.size : -_TAIL.size]
            if footer_size + _TAIL.size <= size
            else self._read_range((end - footer_size, end))
        )
        if zlib.crc32(data) != checksum:
            raise ValueError("its footer has another checksum")
        footer: dict[str, Any] = json.loads(zlib.decompress(data))
        return footer

    def _read_ranges(self, ranges: Sequence[Range]) -> dict[Range, memoryview]:
        """Return the bytes of ranges. Neighbors are read at once."""
        if not ranges:
            return {}
        with self._lock:
            merged = merge_neighbors(ranges)
            if self._input.fetch is not None:
                self._input.fetch(merged)
            buffers = [memoryview(self._read_range(range_)) for range_ in merged]
        data, number = {}, 0
        for start, end in sorted(ranges):
            while end > merged[number][1]:
                number += 1
            first = merged[number][0]
            data[start, end] = buffers[number][start - first : end - first]
        return data

    def _read_range(self, range_: Range) -> bytes:
        start, end = range_
        self._input.file.seek(start)
        data: bytes = self._input.file.read(end - start)
        if len(data) != end - start:
            raise ValueError("it is cut short")
        return data


def _parse_groups(value: Sequence[Any]) -> list[_Group]:
    return [
        _Group(int(offset), int(rows), tuple(map(tuple, widths)), tuple(sizes)) for offset, rows, widths, sizes in value
    ]


@dataclass(frozen=True)
class _Part:
    """Some blocks of a group."""

    group: _Group
    ranges: Sequence[Range]


@dataclass(frozen=True)
class _Texts:
    """The bytes of an array of texts, and the length of each text."""

    data: memoryview
    lengths: Numbers

    def cut(self, count: int, rows: int) -> list[list[memoryview]]:
        """Return the bytes of each of `count` blocks of `rows` texts, in parts of `_TEXT_ROWS` texts."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        edges = [*range(0, rows, _TEXT_ROWS), rows]
        bytes_at = ends[np.arange(count)[:, None] * rows + np.array(edges)].tolist()
        return [[self.data[start:end] for start, end in pairwise(block)] for block in bytes_at]


@dataclass(frozen=True)
class _Encoded:
    """A column of a group as numbers, and as texts for a class of texts."""

    validity: int
    valid: Mask | None
    numbers: Sequence[Numbers]
    texts: _Texts | None = None


def _encode(array: pa.Array, cls: TypeClass) -> _Encoded:
    """Return the numbers and texts of a column."""
    is_text = _is_text(cls)
    if array.null_count == len(array):
        return _Encoded(
            _NONE_VALID, None, [], _Texts(memoryview(b""), np.zeros(len(array), np.int64)) if is_text else None
        )
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    validity = _ALL_VALID if valid is None else _SOME_VALID
    if is_text:
        if array.type != cls.arrow:
            array = array.cast(cls.arrow)
        _, offsets_buffer, data_buffer = array.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64, len(array) + 1, 8 * array.offset)
        lengths = np.diff(offsets)
        data = memoryview(data_buffer or b"")[offsets[0] : offsets[-1]]
        if valid is not None and lengths[~valid].any():  # texts of nulls are no part of the column
            array = pa.array(array.to_pylist(), array.type)
            return _encode(array, cls)
        return _Encoded(validity, valid, [lengths], _Texts(data, lengths))
    numbers = _words(array, cls)
    if valid is not None:
        numbers = [np.where(valid, word, word[valid].min()) for word in numbers]
    return _Encoded(validity, valid, numbers)


def _words(array: pa.Array, cls: TypeClass) -> list[Numbers]:
    """Return the values of a column as one or two 64-bit integers each. Nulls have any number."""
    if cls.name == "boolean":
        return [array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)]
    if cls.name == "uuid":
        storage = array.storage
        data = storage.buffers()[1]
        words = np.frombuffer(data, "<i8", 2 * len(array), 16 * storage.offset).reshape(-1, 2)
        return [np.ascontiguousarray(words[:, at]) for at in (0, 1)]
    if pa.types.is_decimal(cls.arrow):
        low, high = decimal_words(array)
        return [low.view(np.int64), high]
    width = cls.arrow.bit_width // 8
    data = array.buffers()[1]
    if width == 4:
        return [np.frombuffer(data, "<i4", len(array), 4 * array.offset).astype(np.int64)]
    return [np.frombuffer(data, "<i8", len(array), 8 * array.offset)]


def _pack_numbers(numbers: Numbers) -> tuple[int, list[Bytes]]:
    """Return the width in bytes of packed numbers, and per block the least number, then the differences from it.

    Args:
        numbers: One row per block.
    """
    count, rows = numbers.shape
    least = numbers.min(axis=1)
    differences = numbers.view(np.uint64) - least.view(np.uint64)[:, None]
    width = (int(differences.max()).bit_length() + 7) // 8
    packed = np.ascontiguousarray(differences).view(np.uint8).reshape(count, rows, 8)[:, :, :width]
    return width, [least.view(np.uint8).reshape(count, 8), np.ascontiguousarray(packed).reshape(count, rows * width)]


def _unpack_numbers(fixed: memoryview, shape: tuple[int, int, int], position: int, width: int) -> Numbers:
    """Return the numbers of several blocks, one block after the other. The inverse of `_pack_numbers`.

    Args:
        fixed: The fixed parts of the blocks, then at least 7 more bytes.
        shape: The number of blocks, the rows of a block, and the bytes of a fixed part.
        position: Where the column begins in each fixed part.
        width: Bytes of a packed number.
    """
    count, rows, stride = shape
    least = np.ndarray((count, 1), "<u8", fixed, position, (stride, 8)).astype(np.uint64)
    if not width:
        return np.repeat(least[:, 0], rows).view(np.int64)
    is_even = width in (1, 2, 4, 8)
    packed = np.ndarray((count, rows), f"<u{width if is_even else 8}", fixed, position + 8, (stride, width))
    if is_even:
        return (packed + least).reshape(-1).view(np.int64)
    numbers = np.bitwise_and(packed, np.uint64((1 << (8 * width)) - 1))
    numbers += least
    return numbers.reshape(-1).view(np.int64)


def _compress(data: memoryview) -> bytes:
    """Return compressed texts, or the texts themselves if they are not longer."""
    if len(data) >= _COMPRESS_FROM:
        compressed: bytes = pa.compress(data, "zstd", asbytes=True)
        if len(compressed) < len(data):
            return compressed
    return bytes(data)


class _Decoder:
    """Decodes columns of a section, group by group."""

    def __init__(self, columns: Mapping[str, TypeClass], wanted: Collection[str] | None) -> None:
        self._columns = columns
        self._wanted = [name for name in columns if wanted is None or name in wanted]
        self._numbers: dict[str, list[list[Numbers]]] = {name: [] for name in self._wanted}
        self._valid: dict[str, list[tuple[int, Mask | None]]] = {name: [] for name in self._wanted}
        self._texts: dict[str, list[memoryview]] = {name: [] for name in self._wanted}

    def add(self, part: _Part, blocks: Sequence[memoryview]) -> None:
        """Decode blocks of one group."""
        group, rows = part.group, part.group.block_rows
        for block in blocks:
            if zlib.crc32(block[4:]) != int.from_bytes(block[:4], "little"):
                raise ValueError("a block has another checksum")
        part_count = -(-rows // _TEXT_ROWS)
        text_count = part_count * sum(map(_is_text, self._columns.values()))
        position = 4 + 4 * text_count
        stride = position + _fixed_bytes(group, rows)
        data = memoryview(b"".join([*(block[:stride] for block in blocks), bytes(8)]))
        fixed = np.frombuffer(data, np.uint8, len(blocks) * stride).reshape(len(blocks), stride)
        shape = len(blocks), rows, stride
        text_sizes = np.ascontiguousarray(fixed[:, 4:position]).view("<u4").reshape(len(blocks), text_count)
        text_ends = np.cumsum(text_sizes, axis=1, dtype=np.int64) + stride
        first_part = 0
        for (name, cls), (validity, *widths) in zip(self._columns.items(), group.widths, strict=True):
            is_wanted, valid = name in self._numbers, None
            if validity == _SOME_VALID:
                size = (rows + 7) // 8
                if is_wanted:
                    bits = np.unpackbits(fixed[:, position : position + size], axis=1, bitorder="little", count=rows)
                    valid = bits.reshape(-1).view(np.bool_)
                position += size
            numbers = []
            for width in widths:
                end = position + 8 + rows * width
                if is_wanted:
                    numbers.append(_unpack_numbers(data, shape, position, width))
                position = end
            if is_wanted:
                self._valid[name].append((validity, valid))
                self._numbers[name].append(numbers or [np.zeros(rows * len(blocks), np.int64)] * _word_count(cls))
            if _is_text(cls):
                if is_wanted:
                    parts = slice(first_part, first_part + part_count)
                    starts, ends = (text_ends - text_sizes)[:, parts].tolist(), text_ends[:, parts].tolist()
                    self._texts[name] += [
                        block[start:end]
                        for block, *edges in zip(blocks, starts, ends, strict=True)
                        for start, end in zip(*edges, strict=True)
                    ]
                first_part += part_count

    def table(self, rows: Rows) -> pa.Table:
        """Return the decoded columns: the rows at some positions among the decoded rows."""
        return pa.table({name: self._column(name, rows) for name in self._wanted})

    def _column(self, name: str, rows: Rows) -> pa.Array:
        cls, parts = self._columns[name], self._numbers[name]
        words = [_concatenate([part[at] for part in parts]) for at in range(_word_count(cls))]
        valid = None
        if any(validity != _ALL_VALID for validity, _ in self._valid[name]):
            masks = [
                np.full(len(part[0]), validity == _ALL_VALID) if mask is None else mask
                for part, (validity, mask) in zip(parts, self._valid[name], strict=True)
            ]
            valid = np.concatenate(masks)
        if _is_text(cls):
            return _decode_texts(cls, self._texts[name], (words[0], valid), rows)
        return _array([word[rows] for word in words], None if valid is None else valid[rows], cls)


def _is_text(cls: TypeClass) -> bool:
    return cls.name in ("string", "binary")


def _decode_texts(
    cls: TypeClass, parts: Sequence[memoryview], lengths_and_valid: tuple[Numbers, Mask | None], rows: Rows
) -> pa.Array:
    """Return the texts at some positions. Only parts with these texts are decompressed.

    Args:
        cls: The type class.
        parts: Compressed texts, `_TEXT_ROWS` in each part but the last one.
        lengths_and_valid: The length of each text in bytes, and whether it is not null.
        rows: The positions.
    """
    lengths, valid = lengths_and_valid
    if isinstance(rows, slice):
        start, stop, _ = rows.indices(len(lengths))
        numbers = np.arange(start // _TEXT_ROWS, max(start // _TEXT_ROWS, -(-stop // _TEXT_ROWS)))
    else:
        numbers = np.unique(rows // _TEXT_ROWS)
    firsts = numbers * _TEXT_ROWS
    selected = RowRanges(firsts, np.minimum(firsts + _TEXT_ROWS, len(lengths)))
    if selected.row_count < len(lengths):
        positions = selected.positions()
        lengths, valid = lengths[positions], None if valid is None else valid[positions]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    counts = np.concatenate([[0], np.cumsum(selected.ends - selected.starts)])
    sizes = np.diff(offsets[counts]).tolist()
    data = b"".join(_decompress(parts[number], size) for number, size in zip(numbers.tolist(), sizes, strict=True))
    if int(offsets[-1]) != len(data):
        raise ValueError("the lengths of texts do not add up")
    buffers = [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(cls.arrow, len(lengths), buffers)
    if isinstance(rows, slice):
        return array.slice(start - start // _TEXT_ROWS * _TEXT_ROWS, max(0, stop - start))
    return array.take(pa.array(np.searchsorted(numbers, rows // _TEXT_ROWS) * _TEXT_ROWS + rows % _TEXT_ROWS))


def _positions_in_blocks(ranges: RowRanges, blocks: Numbers) -> Rows:
    """Return the positions of rows among the rows of the ascending blocks that have them."""
    first_blocks = ranges.starts // BLOCK_ROWS
    shifts = (np.searchsorted(blocks, first_blocks) - first_blocks) * BLOCK_ROWS
    if len(shifts) == 1:
        return slice(int(ranges.starts[0] + shifts[0]), int(ranges.ends[0] + shifts[0]))
    return RowRanges(ranges.starts + shifts, ranges.ends + shifts).positions()


def _fixed_bytes(group: _Group, rows: int) -> int:
    """Return the size in bytes of the part of a block that has the same size in all blocks of a group."""
    size = 0
    for validity, *widths in group.widths:
        size += (rows + 7) // 8 if validity == _SOME_VALID else 0
        size += sum(8 + rows * width for width in widths)
    return size


def _array(words: Sequence[Numbers], valid: Mask | None, cls: TypeClass) -> pa.Array:
    """Return values of a type class, given their 64-bit words. The inverse of `_words`."""
    numbers = words[0]
    if cls.name == "boolean":
        return pa.array(numbers.astype(np.bool_), mask=None if valid is None else ~valid)
    if len(words) == 2:
        numbers = np.stack(words, axis=1)
    elif cls.arrow.bit_width == 32:
        numbers = numbers.astype(np.int32)
    buffers = [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(numbers))]
    if cls.name == "uuid":
        storage = pa.Array.from_buffers(pa.binary(16), len(words[0]), buffers)
        return pa.ExtensionArray.from_storage(cls.arrow, storage)
    return pa.Array.from_buffers(cls.arrow, len(words[0]), buffers)


def _word_count(cls: TypeClass) -> int:
    return 2 if cls.name == "uuid" or pa.types.is_decimal(cls.arrow) else 1


def _bitmap(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _concatenate(parts: Sequence[Numbers]) -> Numbers:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])


def _decompress(data: memoryview, size: int) -> bytes:
    """Return the texts that `_compress` returned."""
    if len(data) == size:
        return bytes(data)
    texts: bytes = pa.decompress(data, size, "zstd", asbytes=True)
    return texts


def _complete(table: pa.Table, columns: Mapping[str, TypeClass]) -> pa.Table:
    """Return a table with all columns of a section; missing ones are null."""
    return pa.table(
        {
            name: table[name] if name in table.column_names else pa.nulls(len(table), cls.arrow)
            for name, cls in columns.items()
        }
    )


def _regroup(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the rows of tables in tables of `rows` rows; the last one may have fewer."""
    collected: list[pa.Table] = []
    count = 0
    for table in tables:
        collected.append(table)
        count += table.num_rows
        if count >= rows:
            joined = pa.concat_tables(collected) if len(collected) > 1 else table
            full = count // rows * rows
            yield from (joined.slice(start, rows) for start in range(0, full, rows))
            collected, count = [joined.slice(full)], count - full
    if count:
        yield pa.concat_tables(collected) if len(collected) > 1 else collected[0]


@contextmanager
def _corruption(uri: str) -> Iterator[None]:
    """Turn errors of decoding into CorruptionErrors that name the file. A missing section is a KeyError."""
    try:
        with parquet_errors(uri):
            yield
    except StoreError:
        raise
    except (IndexError, TypeError, AttributeError, struct.error, zlib.error, OverflowError) as error:
        raise CorruptionError(
            f"{uri} is damaged ({type(error).__name__}: {error}); rebuild with `metastore refresh NAME --full`"
        ) from error
