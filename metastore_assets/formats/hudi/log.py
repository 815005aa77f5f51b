"""Hudi log files, and the headers of their blocks.

A header shows what the block contains and which write added it. A write is identified by its instant, the time at which
it started. A state of a table is the completed writes whose rows a reader sees at one point in time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from metastore_assets.storage.corrupt_input import UnsupportedError

_MAGIC = b"#HUDI#"
_FORMAT = 1
CONTENT_VERSION = 3
"""Content version of blocks with Avro rows or deletes since Hudi 0.13."""
_COMMAND, DELETE_BLOCK, _CORRUPT, AVRO_BLOCK, _HFILE, PARQUET_BLOCK, _CHANGES = range(7)
_INSTANT, _TARGET, SCHEMA_HEADER, _COMMAND_TYPE, _COMPACTED, _POSITIONS, _IDENTIFIER, _PARTIAL, _BASE = range(9)
_MAX_ENTRIES = 100
_MAX_BYTES = 16 << 20
_WINDOW = 64 << 10


@dataclass(frozen=True)
class LogBlock:
    """The header of a block in a log file."""

    kind: int
    headers: Mapping[int, str]
    content_range: tuple[int, int]
    """Position and length of the content in the file."""
    version: int = CONTENT_VERSION
    """Content version of a block with Avro rows or deletes."""

    @property
    def instant(self) -> str:
        """The instant of the write that added the block."""
        return self.headers.get(_INSTANT, "")


def read_blocks(file: pa.NativeFile) -> list[LogBlock]:
    """Read the headers of all blocks, and close the file.

    Raises ArrowInvalid or UnicodeDecodeError for a truncated or corrupt file, and UnsupportedError for an unknown
    version of the file format.
    """
    with file:
        cursor = _PieceReader(file)
        blocks = []
        while cursor.position < cursor.size:
            blocks.append(_read_block(cursor))
    return blocks


class _PieceReader:
    """A reader of small consecutive pieces of a file.

    It fetches many pieces with one request.
    """

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._start = 0
        self._data = b""
        self.size: int = file.size()
        self.position = 0

    def read(self, length: int) -> bytes:
        """Return the next `length` bytes, and move behind them.

        Raises ArrowInvalid if the file has fewer.
        """
        end = self.position + length
        if end > self.size:
            raise pa.ArrowInvalid("the log file is cut off")
        if self.position < self._start or end > self._start + len(self._data):
            self._file.seek(self.position)
            self._start, self._data = self.position, self._file.read(max(length, _WINDOW))
        data = self._data[self.position - self._start : end - self._start]
        self.position = end
        return data

    def number(self, width: int) -> int:
        return int.from_bytes(self.read(width), "big")


def check_mergeable(blocks: Iterable[LogBlock]) -> None:
    """Raise UnsupportedError for a block that cannot be merged.

    Raise ArrowInvalid for a block without an instant.
    """
    for block in blocks:
        if block.kind == _HFILE:
            raise UnsupportedError("log blocks in HFile are not supported")
        if block.kind not in (_COMMAND, DELETE_BLOCK, AVRO_BLOCK, PARQUET_BLOCK):
            raise UnsupportedError(f"log blocks of type {block.kind} are not supported")
        _check_content_version(block)
        if block.headers.get(_PARTIAL, "").lower() == "true":
            raise UnsupportedError("log blocks with partial updates are not supported")
        if block.headers.get(_COMPACTED):
            raise UnsupportedError("log blocks of a log compaction are not supported")
        if not block.instant:
            raise pa.ArrowInvalid("a log block does not record its instant")
        if block.kind == _COMMAND and block.headers.get(_COMMAND_TYPE) != "0":
            raise UnsupportedError("log blocks with commands other than rollbacks are not supported")


def _check_content_version(block: LogBlock) -> None:
    """Raise UnsupportedError if a block's Avro rows or deletes have an unsupported content version."""
    if block.kind == AVRO_BLOCK and not 1 <= block.version <= CONTENT_VERSION:
        raise UnsupportedError(f"Avro log blocks of version {block.version} are not supported")
    if block.kind == DELETE_BLOCK and block.version != CONTENT_VERSION:
        # Versions 1 and 2 are Java objects serialized by Kryo.
        age = ", which Hudi wrote up to 0.12," if block.version in (1, 2) else ""
        raise UnsupportedError(
            f"delete blocks of version {block.version}{age} are not supported; "
            "compact the table with Hudi, which merges them into base files"
        )


def live_instants(blocks: Iterable[LogBlock], is_in_state: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the instants of those blocks whose writes belong to a state, in the order of the blocks.

    If a block rolls back the write of an instant, only later blocks of this instant count.

    Args:
        blocks: the blocks of all log files of a slice, in order.
        is_in_state: returns whether an instant belongs to the state.
    """
    live: dict[str, None] = {}
    for block in blocks:
        if block.kind == _COMMAND:
            live.pop(block.headers.get(_TARGET, ""), None)
        elif is_in_state(block.instant):
            live[block.instant] = None
    return tuple(live)


def applied_blocks(blocks: Iterable[LogBlock], instants: Collection[str]) -> list[LogBlock]:
    """Return the blocks of a log file that belong to writes at the given instants, in stored order.

    These are the blocks that such a write added, and the command blocks that roll back such a write. A write that was
    rolled back may be repeated at the same instant. The result then has the blocks of both attempts, and the command
    block between them.

    Args:
        blocks: the blocks of a log file.
        instants: the result of `live_instants` for all log files of the slice.
    """
    return [
        block
        for block in blocks
        if (block.headers.get(_TARGET, "") if block.kind == _COMMAND else block.instant) in instants
    ]


def encode_block(kind: int, headers: Mapping[int, str], content: bytes) -> bytes:
    """Return the bytes of a block as they are stored in a log file."""
    body = _FORMAT.to_bytes(4, "big") + kind.to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    for key, text in headers.items():
        body += key.to_bytes(4, "big") + len(text.encode()).to_bytes(4, "big") + text.encode()
    body += len(content).to_bytes(8, "big") + content + (0).to_bytes(4, "big")
    length = len(body) + 8
    return _MAGIC + length.to_bytes(8, "big") + body + (length + len(_MAGIC)).to_bytes(8, "big")


def _read_block(cursor: _PieceReader) -> LogBlock:
    """Read the header of the block at the cursor, and move the cursor to the end of the block.

    Raises ArrowInvalid or UnicodeDecodeError if the block is corrupt, or UnsupportedError for an unknown version of the
    format.
    """
    start = cursor.position
    if cursor.read(len(_MAGIC)) != _MAGIC:
        raise pa.ArrowInvalid(f"the log file is corrupt at byte {start}")
    length = cursor.number(8)
    end = cursor.position + length
    if length < 8 or end > cursor.size:
        raise pa.ArrowInvalid(f"the log file ends inside the block at byte {start}")
    version = cursor.number(4)
    if version != _FORMAT:
        raise UnsupportedError(f"log files of format {version} are not supported")
    kind = cursor.number(4)
    headers = {}
    for _ in range(_check_size(cursor.number(4), _MAX_ENTRIES, start)):
        key = cursor.number(4)
        headers[key] = cursor.read(_check_size(cursor.number(4), _MAX_BYTES, start)).decode()
    size = cursor.number(8)
    content_range = (cursor.position, _check_size(size, end - cursor.position, start))
    content = cursor.number(4) if kind in (AVRO_BLOCK, DELETE_BLOCK) and size >= 4 else CONTENT_VERSION
    cursor.position = end - 8
    # The length is repeated after the block, so that a reader can start from the end.
    if cursor.number(8) != length + len(_MAGIC):
        raise pa.ArrowInvalid(f"the log file's block at byte {start} is corrupt")
    return LogBlock(kind, headers, content_range, content)


def _check_size(number: int, maximum: int, start: int) -> int:
    if number > maximum:
        raise pa.ArrowInvalid(f"the log file's block at byte {start} is corrupt")
    return number
