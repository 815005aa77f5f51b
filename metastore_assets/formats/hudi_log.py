"""Log files of Hudi: their blocks' headers, which say what is in them and which write it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

_MAGIC = b"#HUDI#"
_FORMAT = 1
_COMMAND, _DELETE, _CORRUPT, _AVRO, _HFILE, _PARQUET, _CHANGES = range(7)
_INSTANT, _TARGET, _SCHEMA, _COMMAND_TYPE, _COMPACTED, _POSITIONS, _IDENTIFIER, _PARTIAL, _BASE = range(9)
_MOST_ENTRIES = 100
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class LogBlock:
    """One block, without its content."""

    kind: int
    headers: Mapping[int, str]

    @property
    def instant(self) -> str:
        """The write that the block belongs to."""
        return self.headers.get(_INSTANT, "")


def read_blocks(file: pa.NativeFile) -> list[LogBlock]:
    """The headers of all blocks. Raises ArrowInvalid for a file that is cut off or broken, and closes it."""
    with file:
        size = file.size()
        blocks = []
        position = 0
        while position < size:
            block, position = _read_block(file, position, size)
            blocks.append(block)
    return blocks


def check_mergeable(blocks: Iterable[LogBlock]) -> None:
    """Raise ArrowInvalid for a block whose meaning no reader here knows."""
    for block in blocks:
        if block.kind == _HFILE:
            raise pa.ArrowInvalid("HFile log blocks have no reader")
        if block.kind not in (_COMMAND, _DELETE, _AVRO, _PARQUET):
            raise pa.ArrowInvalid(f"log blocks of type {block.kind} have no reader")
        if block.headers.get(_PARTIAL, "").lower() == "true":
            raise pa.ArrowInvalid("log blocks with partial updates have no reader")
        if block.headers.get(_COMPACTED):
            raise pa.ArrowInvalid("log blocks of a log compaction have no reader")
        if not block.instant:
            raise pa.ArrowInvalid("a log block does not say which write it belongs to")
        if block.kind == _COMMAND and block.headers.get(_COMMAND_TYPE) != "0":
            raise pa.ArrowInvalid("log blocks with commands other than rollbacks have no reader")


def live_instants(blocks: Iterable[LogBlock], has: Callable[[str], bool]) -> tuple[str, ...]:
    """Instants whose blocks apply: those of a state that no later block rolls back. In the order of the blocks."""
    live: dict[str, None] = {}
    for block in blocks:
        if block.kind == _COMMAND:
            live.pop(block.headers.get(_TARGET, ""), None)
        elif has(block.instant):
            live[block.instant] = None
    return tuple(live)


def _read_block(file: pa.NativeFile, position: int, size: int) -> tuple[LogBlock, int]:
    file.seek(position)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise pa.ArrowInvalid(f"the log file is broken at byte {position}")
    length = _number(file, 8)
    end = position + len(_MAGIC) + 8 + length
    if length < 8 or end > size:
        raise pa.ArrowInvalid(f"the log file ends inside the block at byte {position}")
    version = _number(file, 4)
    if version != _FORMAT:
        raise pa.ArrowInvalid(f"log files of format {version} have no reader")
    kind = _number(file, 4)
    headers = _entries(file, position)
    file.seek(end - 8)
    # The length is repeated behind the block, to be found from its end.
    if _number(file, 8) != length + len(_MAGIC):
        raise pa.ArrowInvalid(f"the log file's block at byte {position} is broken")
    return LogBlock(kind, headers), end


def _entries(file: pa.NativeFile, position: int) -> dict[int, str]:
    entries = {}
    count = _number(file, 4)
    if count > _MOST_ENTRIES:
        raise pa.ArrowInvalid(f"the log file's block at byte {position} is broken")
    for _ in range(count):
        key, length = _number(file, 4), _number(file, 4)
        if length > _MOST_BYTES:
            raise pa.ArrowInvalid(f"the log file's block at byte {position} is broken")
        entries[key] = file.read(length).decode()
    return entries


def _number(file: pa.NativeFile, width: int) -> int:
    data = file.read(width)
    if len(data) < width:
        raise pa.ArrowInvalid("the log file is cut off")
    return int.from_bytes(data, "big")
