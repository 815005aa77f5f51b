"""Sums of the value frequencies of columns on Spark, with one shuffle.

Each profile has a sign: 1 to add its frequencies, -1 to subtract them. Tasks sum the frequencies of some profiles, and
send these partial sums as blobs. A reducer adds up the partial sums of one column at a time, or of one range of its
values.

A profile is the statistics of a data file, a partition or the table, and a profile spec says which statistics it has.
A merged profile is made from other profiles: that of a partition from those of its data files, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias, TypeVar

import pyarrow as pa

from metastore_assets.errors import CorruptionError
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import FrequencyReader
from metastore_assets.spark.runner import balance_bins
from metastore_assets.spark.shuffle import ShuffledRow, shuffle
from metastore_assets.statistics.frequencies import EMPTY, Frequencies, split_frequencies, sum_frequencies
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ProfileFiles

_TERMS_PER_TASK = 16
_ROWS_PER_PARTITION = 2_000_000
_ROWS_PER_BLOB = 262_144
_BYTES_PER_BLOB = 4 << 20
"""Maximum size of a blob, because Spark copies blobs and holds several of them in memory."""
_SIGN = b"sign"
"""Metadata key of a blob for the sign of its frequencies: `1` or `-1`."""

R = TypeVar("R")
WriteSums: TypeAlias = Callable[[int, Iterable[tuple[int, Frequencies]]], R]
"""Receives the number of a profile, and (position, summed frequencies) of columns in order."""


@dataclass(frozen=True)
class FrequencySum:
    """A sum to compute: columns of one merged profile, and the profiles to add or subtract."""

    profile_number: int
    """Number of the merged profile. Sums with the same number have different columns of it."""
    positions: tuple[int, ...]
    """Positions of the columns in the profile spec."""
    terms: tuple[tuple[ProfileFiles, int], ...]
    """The profiles to sum, each with its sign: 1 to add, -1 to subtract. A profile without the column adds nothing."""
    rows: int
    """The approximate number of values to read, over all terms and columns."""
    splitters: Mapping[int, pa.Array] = field(default_factory=dict)
    """The values that split a column into ranges, by position. One task sums each range."""


@dataclass(frozen=True)
class _PartialSum:
    """A part of a `FrequencySum`: all of its columns, but only some of its profiles.

    One task computes it.
    """

    profile_number: int
    """Number of the merged profile, as in `FrequencySum`."""
    partitions: tuple[tuple[int, int], ...]
    """(position in the profile spec, shuffle partition) of each column. If a column is split into ranges, the first
    range has this partition, the second range the next one, and so on."""
    terms: tuple[tuple[ProfileFiles, int], ...]
    """The profiles of this part, each with its sign."""
    splitters: Mapping[int, pa.Array]
    """The values that split a column into ranges, by position in the profile spec."""
    is_first: bool
    """Whether this is the first part of its sum. If its profiles have no frequencies of a column, it sends empty ones,
    so that the column is written even if no part has any."""


def sum_on_spark(
    engine: Engine, store: ObjectStore, spec: ProfileSpec, sums: Sequence[FrequencySum], write: WriteSums[R]
) -> list[R]:
    """Sum frequencies on Spark, pass each group of summed columns to `write`, and return its results.

    A group has some columns of one merged profile, or one range of the values of a column.

    Args:
        engine: Provides the Spark session.
        store: The folder of the table.
        spec: The profile spec of the summed profiles.
        sums: The sums to compute.
        write: Writes one group. Runs in Spark tasks, and must be picklable.

    Raises:
        CorruptionError: A profile is damaged, or a summed frequency is negative.
    """
    slots = engine.slots()
    parts, partitions = _partial_sums(sums, slots)
    bins = balance_bins([float(len(part.terms) * len(part.partitions)) for part in parts], slots * 4)
    tasks = [[parts[index] for index in group] for group in bins]
    return shuffle(
        engine.session, partial(_read_partial_sums, store, spec), tasks, partitions, partial(_write_sums, spec, write)
    )


def full_sums(
    spec: ProfileSpec, columns: Iterable[tuple[int, Sequence[tuple[Frequencies, int]]]]
) -> Iterator[tuple[int, Frequencies]]:
    """Yield (position in the profile spec, summed frequencies) of each column, one column at a time.

    Args:
        spec: The profile spec. It provides the path of a column for the error.
        columns: (position in the profile spec, terms) of each column. A term is (frequencies, sign).

    Raises:
        CorruptionError: A summed frequency is negative.
    """
    for position, terms in columns:
        try:
            yield position, sum_frequencies(terms)
        except CorruptionError as error:
            column, _ = spec.columns[position]
            raise CorruptionError(f"column {column.path!r}: {error}") from error


def _partial_sums(sums: Sequence[FrequencySum], slots: int) -> tuple[list[_PartialSum], int]:
    """Split sums into parts that each read at most 16 profiles.

    Return (parts, number of shuffle partitions).

    Args:
        sums: The sums.
        slots: Number of tasks that Spark runs at a time. There are more shuffle partitions if there are more slots.
    """
    count = max(1, min(4 * slots, sum(total.rows for total in sums) // _ROWS_PER_PARTITION + slots))
    positions: dict[int, set[int]] = {}
    rows: dict[int, int] = {}
    for total in sums:
        positions.setdefault(total.profile_number, set()).update(total.positions)
        rows[total.profile_number] = rows.get(total.profile_number, 0) + total.rows
    # The partition of each (profile, column). Columns of one profile are spread over few adjacent partitions.
    partition_of: dict[tuple[int, int], int] = {}
    next_partition = 0
    for number, columns in positions.items():
        spread = max(1, min(count, len(columns), rows[number] // _ROWS_PER_PARTITION + 1))
        for index, position in enumerate(sorted(columns)):
            partition_of[number, position] = (next_partition + index * spread // len(columns)) % count
        next_partition += spread
    # A column that is split into ranges has partitions of its own: one for each range, from this number on.
    for total in sums:
        for position, splitters in total.splitters.items():
            partition_of[total.profile_number, position] = count
            count += len(splitters) + 1
    parts = []
    for total in sums:
        partitions = tuple((position, partition_of[total.profile_number, position]) for position in total.positions)
        for start in range(0, max(1, len(total.terms)), _TERMS_PER_TASK):
            terms = total.terms[start : start + _TERMS_PER_TASK]
            parts.append(_PartialSum(total.profile_number, partitions, terms, total.splitters, is_first=start == 0))
    return parts, count


def _read_partial_sums(store: ObjectStore, spec: ProfileSpec, parts: Sequence[_PartialSum]) -> Iterator[ShuffledRow]:
    """Compute the partial sums `parts` from stored profiles.

    Yield the sums of each column as shuffle rows.
    """
    with StatesReader(store) as states_reader:
        for part in parts:
            readers = [(FrequencyReader(states_reader, files), sign) for files, sign in part.terms]
            try:
                for position, partition in part.partitions:
                    yield from _column_rows(spec, part, readers, position, partition)
            finally:
                for reader, _ in readers:
                    reader.__exit__()


def _column_rows(
    spec: ProfileSpec,
    part: _PartialSum,
    readers: Sequence[tuple[FrequencyReader, int]],
    position: int,
    partition: int,
) -> Iterator[ShuffledRow]:
    """Sum the frequencies of one column over profiles.

    Yield the sums as shuffle rows.

    There are two sums: one of the profiles to add, and one of the profiles to subtract. If `part.splitters` splits the
    column into ranges, each sum is split, too: into one or more rows per range that has values.

    Args:
        spec: The profile spec of the profiles.
        part: The partial sum to which the rows belong.
        readers: (reader of a profile, 1 to add the profile or −1 to subtract it).
        position: Position of the column in `spec.columns`.
        partition: Shuffle partition of the column. If the column is split, its first range has this partition, the
            second range the next one, and so on.
    """
    column, _ = spec.columns[position]
    has_terms = False
    for sign in (1, -1):
        terms = [reader.read(column.field_id) for reader, term_sign in readers if term_sign == sign]
        present = [frequencies for frequencies in terms if frequencies is not None]
        if not present:
            continue
        has_terms = True
        total = present[0] if len(present) == 1 else sum_frequencies((frequencies, 1) for frequencies in present)
        ranges = split_frequencies(total, part.splitters[position]) if position in part.splitters else [total]
        for number, frequencies in enumerate(ranges):
            if len(frequencies) or len(ranges) == 1:
                for blob in encode_frequencies(frequencies, sign):
                    yield ShuffledRow(partition + number, part.profile_number, position, blob)
    if part.is_first and not has_terms:
        # Empty frequencies are written too: they record that the column has no values.
        for blob in encode_frequencies(EMPTY, 1):
            yield ShuffledRow(partition, part.profile_number, position, blob)


def _write_sums(spec: ProfileSpec, write: WriteSums[R], profile_number: int, rows: Iterator[ShuffledRow]) -> R:
    """Add up the partial sums that a reducer received, by column.

    Pass the sums to `write`, and return its result.
    """
    columns = groupby(rows, key=attrgetter("position"))
    terms = ((position, [decode_frequencies(row.blob) for row in column]) for position, column in columns)
    return write(profile_number, full_sums(spec, terms))


def encode_frequencies(frequencies: Frequencies, sign: int) -> Iterator[bytes]:
    """Encode frequencies as compressed Arrow streams of bounded size.

    Empty frequencies yield one stream, too.

    Args:
        frequencies: The frequencies.
        sign: 1 if the frequencies are to be added, −1 if they are to be subtracted. It is stored in each stream.
    """
    table = pa.table({"value": frequencies.values, "frequency": frequencies.counts}, metadata={_SIGN: str(sign)})
    for piece in _pieces(table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(piece)
        yield sink.getvalue().to_pybytes()


def decode_frequencies(blob: bytes) -> tuple[Frequencies, int]:
    """Decode a stream of `encode_frequencies`.

    Return (frequencies, 1 to add them or −1 to subtract them).
    """
    table = pa.ipc.open_stream(blob).read_all().combine_chunks()
    value, frequency = table.column("value"), table.column("frequency")
    frequencies = Frequencies(
        value.chunk(0) if value.num_chunks else pa.array([], value.type),
        frequency.chunk(0) if frequency.num_chunks else pa.array([], pa.int64()),
    )
    return frequencies, int(table.schema.metadata[_SIGN])


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield consecutive slices of a table.

    The table is halved until each slice fits into a blob, or has one row.
    """
    rows = table.num_rows
    if rows <= 1 or (rows <= _ROWS_PER_BLOB and table.nbytes <= _BYTES_PER_BLOB):
        yield table
        return
    yield from _pieces(table.slice(0, rows // 2))
    yield from _pieces(table.slice(rows // 2))
