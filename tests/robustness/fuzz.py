"""Reproducible mutations of files by seed, and a process that reads the mutated tables."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metastore_assets.config import TableConfig

_PATIENCE = 60.0
"""Seconds after which reading a table is ended as hanging."""
_MOST_PEAK = 1 << 30
"""The most bytes of memory that reading a table of a few rows may take."""
_MOST_MESSAGE = 4000
_STRANGE: Sequence[Any] = (
    None, True, -1, 0, 2**31, 2**63, -(2**63), 2**70, 1e400, float("nan"), "", "\0", "\ud800", "../..", "/", "x" * 5000,
    [], {}, [[]], {"": {}}, [None], "9" * 5000,
)  # fmt: skip


def mutated(data: bytes, seed: int) -> tuple[bytes, str]:
    """Return the mutated content of a file, and a description of the mutation.

    `seed` determines the mutation.
    """
    rng = random.Random(seed)
    kinds = [_flip, _flip, _flip, _cut, _grow, _zero]
    if data[:1] in (b"{", b"["):
        kinds += [_restructure] * 4
    return rng.choice(kinds)(data, rng)


def _flip(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    changed_data = bytearray(data)
    positions = [rng.randrange(len(data)) for _ in range(rng.choice((1, 1, 1, 2, 4)))] if data else []
    for position in positions:
        changed_data[position] = rng.choice(
            (0, 127, 128, 255, rng.randrange(256), changed_data[position] ^ (1 << rng.randrange(8)))
        )
    return bytes(changed_data), f"other bytes at {positions}"


def _cut(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    start = rng.randrange(len(data) + 1)
    end = len(data) if rng.random() < 0.7 else rng.randrange(start, len(data) + 1)
    return data[:start] + data[end:], f"without the bytes from {start} to {end}"


def _grow(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    position = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
    first = rng.randrange(len(data) + 1)
    more = rng.choice((rng.randbytes(rng.randrange(1, 64)), data[first : first + rng.randrange(1, 200)], b"\0" * 4096))
    return data[:position] + more + data[position:], f"{len(more)} bytes more at {position}"


def _zero(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice((1, 4, 16, 512)))
    return data[:start] + bytes([rng.choice((0, 255))]) * (end - start) + data[end:], f"blank from {start} to {end}"


def _restructure(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Replace or remove a value in a JSON document, or in one line of a JSON lines file.

    If the data is not JSON, or has no value to replace, change random bytes instead.
    """
    lines = data.split(b"\n")
    try:
        number = 0 if len(lines) < 2 or not lines[1] or lines[0].strip() == b"{" else rng.randrange(len(lines))
        is_one_document = number == 0 and lines[0].strip() in (b"{", b"[")
        document = json.loads(data if is_one_document else lines[number])
    except ValueError:
        return _flip(data, rng)
    locations = list(_json_locations(document))
    if not locations:
        return _flip(data, rng)
    holder, key = rng.choice(locations)
    what = rng.choice(("strange", "strange", "strange", "gone", "deep", "moved"))
    if what == "gone":
        del holder[key]
    elif what == "deep":
        deep: Any = 1
        for _ in range(rng.choice((5, 150, 400))):
            deep = {"type": deep, "fields": [deep]} if rng.random() < 0.01 else [deep]
        holder[key] = deep
    elif what == "moved":
        other, other_key = rng.choice(locations)
        holder[key] = json.loads(json.dumps(other[other_key]))
    else:
        holder[key] = rng.choice(_STRANGE)
    text = json.dumps(document).encode()
    lines[number] = text
    return text if is_one_document else b"\n".join(lines), f"{what} at {key!r} in line {number + 1}"


def _json_locations(value: Any) -> Iterator[tuple[Any, Any]]:
    below = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, inner in below:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _json_locations(inner)


@dataclass(frozen=True)
class Outcome:
    """The result of reading a table.

    It is a digest of the rows, the message of a refusal, an unexpected error, or the end of the reading process.
    """

    rows: str | None = None
    refused: str | None = None
    raised: str | None = None
    """The traceback of an error that no user should see."""
    died: str | None = None
    """The status or signal with which the process ended, or that it hung."""
    peak: int = 0
    """Peak memory in bytes."""

    def wrong(self, folder: Path, *, is_frugal: bool = True) -> str | None:
        """Return what is wrong with the outcome, or None if nothing is.

        An unexpected exception and the end of the process are wrong. So is a refusal whose message names no path in
        `folder`, or is too long. With `is_frugal`, too much memory is wrong, too. Rows are not compared.
        """
        if self.raised or self.died:
            return self.raised or self.died
        if is_frugal and self.peak > _MOST_PEAK:
            return f"it took {self.peak:,} bytes of memory"
        if self.refused is not None:
            if str(folder) not in self.refused:
                return f"the error names no file of the table: {self.refused}"
            if len(self.refused) > _MOST_MESSAGE:
                return f"the error is long: {self.refused[:500]}"
        return None


class Reader:
    """A process that reads tables.

    If a table ends the process, another one is started.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self, table: TableConfig, *, profile: bool = True) -> Outcome:
        """Profile and read a table, or only read its rows if `profile` is False.

        Return the outcome.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(_PATIENCE, process.kill)
        timer.start()
        try:
            request = {"table": table.model_dump(mode="json", by_alias=True), "profile": profile}
            process.stdin.write(f"{json.dumps(request)}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if line:
            answer = json.loads(line)
            return Outcome(**{key: answer.get(key) for key in ("rows", "refused", "raised", "peak")})
        code = process.wait()
        self._process = None
        hung = code == -signal.SIGKILL
        return Outcome(
            died=f"it hung for {_PATIENCE} s" if hung else f"status {code}" if code >= 0 else signal.strsignal(-code)
        )

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.robustness.fuzz_reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        return self._process


@contextmanager
def changed(path: Path, change: Callable[[bytes], bytes]) -> Iterator[None]:
    """During the block, replace the content of a file by what `change` returns for this content."""
    before = path.read_bytes()
    path.write_bytes(change(before))
    try:
        yield
    finally:
        path.write_bytes(before)
