"""Timestamps without a zone in ORC files that were written in a time zone other than UTC.

ORC stores such timestamps as seconds in the local time of the writer. Arrow converts some of them wrongly: near 1970 by
a second, and before 1900 with other offsets than Java. Therefore Arrow reads a copy of the file with the zone GMT. Then
this module converts the stored seconds as Java's reader does.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metastore_assets.formats.readers.orc_tail import OrcTail, Stripe, decode_message, encode_message
from metastore_assets.iso8601 import EPOCH
from metastore_assets.startup import pc
from metastore_assets.storage.compression import decompress_block, decompress_snappy
from metastore_assets.storage.corrupt_input import UnsupportedError, check_limit
from metastore_assets.storage.limits import METADATA_BYTES

_MAGIC = b"ORC"
_STREAMS_ZONE = 3
_GMT = "GMT"
_NAMED_UTC = re.compile(r"(Etc/)?(UTC|GMT|UCT|Zulu|Universal|Greenwich|GMT[+-]?0)")
"""Matches the names of UTC in the time zone database, which Arrow knows."""
_UTC = re.compile(rf"{_NAMED_UTC.pattern}|Z|GMT[+-]0?0(:?00)?")
_LOCAL = "localtime"
"""A name of the zone of the reading machine."""
_FIXED = re.compile(r"GMT([+-])([01]?\d|2[0-3])(?::?([0-5]\d))?")
_SHORT_NAMES: Mapping[str, str] = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "GMT-5", "HST": "GMT-10",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "MST": "GMT-7", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Short zone names of Java that the time zone database lacks."""

_NAMES_1950 = """
Africa/Addis_Ababa Africa/Asmara Africa/Bangui Africa/Banjul Africa/Blantyre Africa/Brazzaville Africa/Bujumbura
Africa/Dakar Africa/Djibouti Africa/Douala Africa/Freetown Africa/Gaborone Africa/Harare Africa/Kigali Africa/Kinshasa
Africa/Libreville Africa/Lome Africa/Luanda Africa/Lubumbashi Africa/Lusaka Africa/Maseru Africa/Mbabane
Africa/Ouagadougou Africa/Porto-Novo America/Anguilla America/Atikokan America/Blanc-Sablon America/Cayman
America/Dominica America/Grenada America/Guadeloupe America/Montserrat America/Port_of_Spain America/St_Kitts
America/St_Lucia America/St_Thomas America/St_Vincent America/Tortola Asia/Aden Asia/Bahrain Asia/Brunei
Asia/Kuala_Lumpur Asia/Kuwait Asia/Muscat Asia/Phnom_Penh CET Europe/Amsterdam Europe/Copenhagen Europe/Guernsey
Europe/Jersey Europe/Ljubljana Europe/Luxembourg Europe/Monaco Europe/Sarajevo Europe/Skopje Europe/Stockholm
Europe/Zagreb Indian/Christmas Indian/Cocos Indian/Comoro Indian/Mahe Indian/Mayotte Indian/Reunion MET Pacific/Chuuk
Pacific/Funafuti Pacific/Pohnpei Pacific/Saipan Pacific/Wake Pacific/Wallis
"""
_NAMES_1970 = """
Africa/Accra Africa/Bamako Africa/Conakry Africa/Dar_es_Salaam Africa/Kampala Africa/Malabo Africa/Mogadishu
Africa/Niamey Africa/Nouakchott America/Antigua America/Aruba America/Creston America/Curacao America/Nassau
Antarctica/DumontDUrville Antarctica/McMurdo Antarctica/Syowa Asia/Vientiane Atlantic/Reykjavik Atlantic/St_Helena
CST6CDT EET EST5EDT Europe/Oslo Indian/Antananarivo Indian/Kerguelen MST7MDT PST8PDT Pacific/Majuro Pacific/Midway WET
"""
_MERGED_1950, _MERGED_1970 = frozenset(_NAMES_1950.split()), frozenset(_NAMES_1970.split())
"""Zones whose offsets before 1950, or before 1970, are uncertain. Many copies of the time zone database replace this
part of their history by the history of another zone. Java's copy does not."""

_SECOND = 1_000_000_000
_MILLI = 999_999
"""Fractions up to this number of nanoseconds do not count when seconds are truncated."""
_BASE = 1_420_070_400
"""1 January 2015 in UTC, the epoch of ORC timestamps."""
_JAVA_START = -2_208_988_800
"""1 January 1900 in UTC. Before it, java.util.TimeZone uses the standard offset of today."""
_QUARTER = 15 * 60
_START_1950, _START_1970 = -631_152_000, -86_400
"""Seconds since which offsets are reliable in the zones of _MERGED_1950 and _MERGED_1970. The latter is a day before
1970, because times of day are stored as times on 1 January 1970."""
_YEAR_2037, _DAY = 2_114_380_800, 86_400
"""Start of 2037, whose smallest offset is taken as the standard offset of a zone; seconds of a day."""


class Clock:
    """The local clock of a writer's time zone.

    Args:
        zone: name of the zone in the file.
        is_java: whether Apache's Java library wrote the file.

    Raises:
        UnsupportedError: the zone is unknown.
    """

    def __init__(self, zone: str, *, is_java: bool) -> None:
        self._zone = _SHORT_NAMES.get(zone, zone)
        self._is_java = is_java
        self._fixed: int | None = None
        if _UTC.fullmatch(self._zone):
            self._fixed = 0
        elif match := _FIXED.fullmatch(self._zone):
            seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60
            self._fixed = -seconds if match[1] == "-" else seconds
        try:
            if self._zone == _LOCAL:
                raise ZoneInfoNotFoundError(_LOCAL)
            self._base = int(self._offsets(np.array([_BASE]))[0])
            self._standard = int(self._offsets(_YEAR_2037 + _DAY * np.arange(365)).min())
        except (pa.ArrowInvalid, ZoneInfoNotFoundError) as error:
            raise UnsupportedError(
                f"its timestamps are by the clock of the time zone {zone!r}, which the time zone database of this "
                "machine does not have; write the file in a zone that it has (such as Europe/Paris), or in UTC"
            ) from error

    def to_local(self, array: pa.Array) -> pa.Array:
        """Convert timestamps to the local time of the writer.

        Args:
            array: timestamps in nanoseconds, as Arrow reads them from a copy of the file with the zone GMT.

        Raises:
            UnsupportedError: the offset of the zone is uncertain, or the result is out of range.
        """
        integers = array.view(pa.int64())
        values = pc.fill_null(integers, 0).to_numpy()
        seconds, nanos = np.divmod(values, _SECOND)
        has_fraction = nanos > _MILLI
        # This restores the stored seconds, because Arrow subtracted one from those before 1970 in GMT.
        seconds = seconds + (has_fraction & (seconds < 0)) - self._base
        # ORC truncates fractions towards 1970, so earlier seconds with a fraction are one too high.
        seconds = seconds - (has_fraction & (seconds < 0))
        local = seconds + self._java_offsets(seconds)
        if len(local) and not -_MAX_SECONDS < local.min() <= local.max() < _MAX_SECONDS:
            raise UnsupportedError(
                "it holds timestamps before 1678 or after 2261, which no timestamp in nanoseconds is"
            )
        mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        return pa.array(local * _SECOND + nanos, pa.int64(), mask=mask).view(array.type)

    def _java_offsets(self, instants: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the offsets from UTC that Java used, in seconds, at instants in seconds since 1970.

        Raises UnsupportedError in two cases:

        - an instant is before 1900, Java did not write the file, and the offset of the zone is not fixed;
        - an instant since 1900 is in a year for which time zone databases differ in this zone: before 1950 for the
          zones in `_MERGED_1950`, and before 1970 for those in `_MERGED_1970`.
        """
        is_old = instants < _JAVA_START
        if self._fixed is None and not self._is_java and is_old.any():
            raise UnsupportedError(
                f"it holds timestamps before 1900 by the clock of the time zone {self._zone!r}: readers differ in how "
                "far that was from UTC; write the file in UTC"
            )
        first_certain = (
            _START_1950 if self._zone in _MERGED_1950 else _START_1970 if self._zone in _MERGED_1970 else _JAVA_START
        )
        if (~is_old & (instants < first_certain)).any():
            raise UnsupportedError(
                f"it holds timestamps before {1950 if first_certain == _START_1950 else 1970} by the clock of the time "
                f"zone {self._zone!r}, of which time zone databases differ for those years; write the file in UTC"
            )
        return np.where(is_old, self._standard, self._offsets(np.maximum(instants, _JAVA_START)))

    def _offsets(self, instants: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the offsets of the zone from UTC, in seconds, at instants in seconds since 1970."""
        if self._fixed is not None:
            return np.full(len(instants), self._fixed, np.int64)
        is_late = instants >= _YEAR_2037
        near = np.where(is_late, _YEAR_2037, instants)
        local = pc.local_timestamp(pa.array(near, pa.int64()).view(pa.timestamp("s", self._zone)))
        offsets: npt.NDArray[np.int64] = local.view(pa.int64()).to_numpy() - near
        if is_late.any():
            offsets = offsets.copy()
            offsets[is_late] = self._offsets_after_2037(instants[is_late])
        return offsets

    def _offsets_after_2037(self, instants: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the offsets of the zone from UTC, in seconds, at instants in 2037 or later."""
        # Arrow applies no daylight saving time after 2037. Offsets change only at quarters of an hour.
        quarters, positions = np.unique(instants // _QUARTER, return_inverse=True)
        zone = ZoneInfo(self._zone)
        moments = [(EPOCH + timedelta(seconds=quarter * _QUARTER)).astimezone(zone) for quarter in quarters.tolist()]
        offsets = [int((moment.utcoffset() or timedelta()).total_seconds()) for moment in moments]
        return np.array(offsets, np.int64)[positions]


_MAX_SECONDS = (1 << 63) // _SECOND


class WriterZones:
    """The time zones in which the stripes of an ORC file were written.

    `with_zone` and `without_zones` return copies of the file that name another zone.
    """

    def __init__(self, source: pa.NativeFile, tail: OrcTail) -> None:
        """Read the footers of all stripes.

        Raises:
            UnsupportedError: The compression of the file is not supported.
            LimitError: A footer is too large.
            Exception: A footer is corrupt. It is one of `corrupt_input.CORRUPTION_ERRORS`.
        """
        self._source = source
        self._tail = tail
        self._footers = [_decompress_footer(tail.compression, self._read_footer(stripe)) for stripe in tail.stripes]
        zones = [decode_message(footer).get(_STREAMS_ZONE, [b""])[-1] for footer in self._footers]
        self.names = [zone.decode("utf-8", "replace") if isinstance(zone, bytes) else "" for zone in zones]

    @property
    def are_utc(self) -> bool:
        """Whether Arrow knows the zone name of every stripe as a name of UTC, such as `Etc/UTC`."""
        return all(_NAMED_UTC.fullmatch(name) for name in self.names)

    def clocks(self) -> list[Clock]:
        """Return the clock of each stripe.

        A stripe that names no zone is in UTC.
        """
        clocks = {name: Clock(name or _GMT, is_java=self._tail.is_java) for name in set(self.names)}
        return [clocks[name] for name in self.names]

    def without_zones(self) -> pa.NativeFile:
        """Return a copy of the file with the zone GMT in every stripe."""
        return self.with_zone(_GMT)

    def with_zone(self, zone: str) -> pa.NativeFile:
        """Return a copy of the file with another zone in every stripe."""
        parts: list[tuple[int, int] | bytes] = [_MAGIC]
        position = len(_MAGIC)
        stripes = []
        for stripe, footer in zip(self._tail.stripes, self._footers, strict=True):
            encoded_footer = _encode_chunks(
                self._tail.compression, encode_message(decode_message(footer) | {_STREAMS_ZONE: [zone.encode()]})
            )
            stripes.append(stripe.with_position(position, len(encoded_footer)))
            parts += [(stripe.offset, stripe.footer_start - stripe.offset), encoded_footer]
            position += stripe.footer_start - stripe.offset + len(encoded_footer)
        parts.append(self._tail.serialize(stripes, position, partial(_encode_chunks, self._tail.compression)))
        return pa.PythonFile(_ConcatenatedFile(self._source, parts), mode="r")

    def _read_footer(self, stripe: Stripe) -> bytes:
        check_limit(METADATA_BYTES, stripe.footer_length, "bytes in the footer of an ORC stripe")
        data = bytes(self._source.read_at(stripe.footer_length, stripe.footer_start))
        if len(data) < stripe.footer_length:
            raise pa.ArrowInvalid("the footer of a stripe lies behind the end of the ORC file")
        return data


class _ConcatenatedFile(io.RawIOBase):
    """A read-only file whose content is the concatenation of `parts`.

    A part is bytes in memory, or the (offset, size) of a range of the file `source`.
    """

    def __init__(self, source: pa.NativeFile, parts: list[tuple[int, int] | bytes]) -> None:
        self._source = source
        self._parts = parts
        ends = np.cumsum([len(part) if isinstance(part, bytes) else part[1] for part in parts])
        self._ends: list[int] = ends.tolist()
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._ends[-1]}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._ends[-1] if size < 0 else min(self._ends[-1], self._position + size)
        data = b"".join(self._pieces(self._position, stop))
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `stop`, one piece for each part of the file that has some of them."""
        begin = 0
        for part, end in zip(self._parts, self._ends, strict=True):
            first, last = max(start, begin) - begin, min(stop, end) - begin
            if first < last:
                yield part[first:last] if isinstance(part, bytes) else self._range(part[0] + first, last - first)
            begin = end

    def _range(self, offset: int, size: int) -> bytes:
        return bytes(self._source.read_at(size, offset))


_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5
_HEADER_BYTES = 3
_MAX_CHUNK_BYTES = (1 << 23) - 1


def _decompress_footer(compression: int, data: bytes) -> bytes:
    """Return the decompressed footer of a stripe.

    Raises UnsupportedError for an unsupported compression.
    """
    if compression == _NONE:
        return data
    if compression not in _CODECS:
        raise UnsupportedError(
            "it holds timestamps and is compressed in a way in which their time zone cannot be read; write it with "
            "zlib, zstd, snappy or lz4"
        )
    pieces = []
    position = 0
    while position < len(data):
        header = int.from_bytes(data[position : position + _HEADER_BYTES], "little")
        position += _HEADER_BYTES
        chunk = data[position : position + (header >> 1)]
        position += header >> 1
        pieces.append(chunk if header & 1 else _CODECS[compression](chunk))
    return b"".join(pieces)


def _encode_chunks(compression: int, data: bytes) -> bytes:
    """Encode a footer or other metadata for an ORC file, without compressing it.

    In a file without compression, the bytes stay as they are. Otherwise they become chunks marked as not compressed.

    Args:
        compression: The number of the file's compression in the ORC format.
        data: The bytes to encode.
    """
    if compression == _NONE:
        return data
    chunks = [data[start : start + _MAX_CHUNK_BYTES] for start in range(0, len(data), _MAX_CHUNK_BYTES)]
    return b"".join((len(chunk) << 1 | 1).to_bytes(_HEADER_BYTES, "little") + chunk for chunk in chunks)


def _decompress_lz4(data: bytes) -> bytes:
    """Decompress an LZ4 block of unknown size, which Arrow's codec cannot do.

    Raises ArrowInvalid or IndexError if it is corrupt.
    """
    result = bytearray()
    position = 0

    def length(value: int) -> int:
        nonlocal position
        while value >= 15 and data[position] == 255:
            value += 255
            position += 1
        position += value >= 15
        return value + (data[position - 1] if value >= 15 else 0)

    while position < len(data):
        token = data[position]
        position += 1
        literals = length(token >> 4)
        result += data[position : position + literals]
        position += literals
        if position >= len(data):
            break
        distance = int.from_bytes(data[position : position + 2], "little")
        position += 2
        copy_length = length(token & 15) + 4
        if not 0 < distance <= len(result) or len(result) + copy_length > _MAX_CHUNK_BYTES:
            raise pa.ArrowInvalid("the footer of a stripe is broken")
        for _ in range(copy_length):
            result.append(result[-distance])
    return bytes(result)


_CODECS: Mapping[int, Callable[[bytes], bytes]] = {
    _ZLIB: partial(decompress_block, "deflate"),
    _SNAPPY: decompress_snappy,
    _LZ4: _decompress_lz4,
    _ZSTD: partial(decompress_block, "zstandard"),
}
