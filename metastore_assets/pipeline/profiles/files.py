"""Writing of the separate files of a profile: statistics, histograms, frequencies, and states.

States are the mergeable forms of statistics. A profile is the statistics of a data file, a partition or the table, and
a profile spec says which statistics it has. An enumerated column is stored as value counts: its distinct values with
their frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType

import pyarrow as pa

from metastore_assets.pipeline.profile_spec import ProfileSpec
from metastore_assets.pipeline.profiles.states_writer import (
    ROW_COUNT,
    StatesContent,
    StatesWriter,
    is_derivable,
    value_encoding,
    value_encodings,
    value_union,
)
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.profile import ColumnProfile
from metastore_assets.statistics.profile_tables import (
    COLUMNS,
    build_frequencies_table,
    build_histograms_table,
    build_statistics_table,
    encode_columns,
)
from metastore_assets.store.objects import MinimalParquet, ObjectStore, ParquetOptions, unique_name
from metastore_assets.store.parquet import leaf_paths
from metastore_assets.store.sections import SectionOptions, SectionWriter
from metastore_assets.store.version import ProfileFiles

_ROWS_PER_GROUP = 256
_FEW_ROWS = 32
"""Statistics with at most this many rows are compressed by LZ4. The files are no larger, and are read three times as
fast."""
_LONG_VALUES = 1 << 20
"""Size in bytes of the long percentiles in a file above which percentiles have a dictionary, because a long text is
often several of the nine percentiles of its column."""
_SHORT_PERCENTILES = 2000
"""Upper limit of the size in bytes of a column's percentiles, if they are numbers or short texts."""


@dataclass(frozen=True)
class ProfileContent:
    """A profile in memory, with value counts in files."""

    row_count: int
    rows: Sequence[ColumnStatistics]
    """The statistics of the columns, in table order."""
    histograms: Sequence[Histogram | None]
    """The histograms of the columns, in table order; None for a column without one."""
    frequencies: tuple[str, ...] = ()
    """Paths of the files with the value counts; empty if the profile has none."""


class FrequencyWriter:
    """A writer of one `frequencies` file.

    The file has a section for each enumerated column, named by field id.
    """

    def __init__(self, store: ObjectStore, folder: str, spec: ProfileSpec) -> None:
        self._union = value_union(spec)
        schema = pa.schema([("column", pa.string()), ("value", self._union), ("frequency", pa.int64())])
        self.path = f"{folder}/{unique_name()}.frequencies.parquet"
        encodings = {**value_encodings("value", self._union), "frequency": "DELTA_BINARY_PACKED"}
        self._writer = SectionWriter(store, self.path, schema, SectionOptions(encodings))

    def add(self, path: str, field_id: str, frequencies: Frequencies) -> None:
        """Append the section of one column.

        Args:
            path: Path of the column.
            field_id: Field id of the column, which names the section.
            frequencies: The value counts of the column.
        """
        self._writer.write_section(field_id, build_frequencies_table(path, frequencies, self._union))

    def __enter__(self) -> FrequencyWriter:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)


class ProfileWriter:
    """A writer of the files of one profile, under unique names.

    It is a context manager. `files` is set when the context ends without an error.
    """

    def __init__(self, store: ObjectStore, folder: str, spec: ProfileSpec, row_count: int) -> None:
        self._store = store
        self._folder = folder
        self._spec = spec
        self._row_count = row_count
        self._statistics: list[ColumnStatistics] = []
        self._histograms: list[Histogram | None] = []
        self._stack = ExitStack()
        self._frequencies: FrequencyWriter | None = None
        self.files: ProfileFiles

    def add(self, profile: ColumnProfile) -> None:
        """Add the profile of the next column, in table order."""
        statistics = replace(profile.statistics, position=len(self._statistics))
        self._statistics.append(statistics)
        self._histograms.append(profile.histogram)
        if profile.frequencies is not None:
            if self._frequencies is None:
                writer = FrequencyWriter(self._store, self._folder, self._spec)
                self._frequencies = self._stack.enter_context(writer)
            self._frequencies.add(statistics.column, statistics.field_id, profile.frequencies)

    def __enter__(self) -> ProfileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is not None:
            return
        frequencies = () if self._frequencies is None else (self._frequencies.path,)
        profile = ProfileContent(self._row_count, self._statistics, self._histograms, frequencies)
        self.files = write_profile(self._store, self._folder, self._spec, profile)


def write_profile(
    store: ObjectStore, folder: str, spec: ProfileSpec, profile: ProfileContent, *, states: bool = True
) -> ProfileFiles:
    """Write the files of a profile, except its value counts.

    No states file is written if there are no states to store. States that can be derived from the profile's value
    counts are not stored.

    Args:
        store: The table's folder.
        folder: The folder of the files.
        spec: The profile spec.
        profile: The profile.
        states: Whether to write all states, because the profile will be merged. If false, only quantile sketches and
            states of user-defined statistics are written.
    """
    name = f"{folder}/{unique_name()}"
    pairs = list(zip(profile.rows, profile.histograms, strict=True))
    shown_histograms = {
        row.column: shown_histogram(histogram, row) for row, histogram in pairs if histogram is not None
    }
    path = write_statistics(store, f"{name}.statistics.parquet", profile.row_count, profile.rows)
    files = ProfileFiles(path, f"{name}.histograms.parquet" if shown_histograms else "", profile.frequencies)
    if shown_histograms:
        table = build_histograms_table(shown_histograms)
        encodings = {f"{path}.frequency": "DELTA_BINARY_PACKED" for path in shown_histograms}
        types = {path: value_encoding(histogram.type_class) for path, histogram in shown_histograms.items()}
        encodings |= {f"{path}.minimum": encoding for path, encoding in types.items() if encoding}
        with store.parquet_writer(
            files.histograms, table.schema, ParquetOptions(minimal=MinimalParquet(encodings))
        ) as output:
            output.write_table(table)
    # States can be left out only if there are value counts to derive them from.
    strip = bool(profile.frequencies)
    if states:
        stateless = ((strip and is_derivable(row)) or not row.value_count or not _has_states(row) for row, _ in pairs)
    else:
        pairs = [
            (replace(row, distinct_sketch=None), None)
            for row, _ in pairs
            if row.percentiles_guarantee == "estimate" or row.user_states is not None
        ]
        stateless = (row.quantile_sketch is None and row.user_states is None for row, _ in pairs)
    if all(stateless):
        return files
    with StatesWriter(store, folder, StatesContent(value_union(spec))) as writer:
        writer.begin(profile.row_count)
        for row, histogram in pairs:
            writer.add(ColumnProfile(row, None, histogram), strip=strip and states)
    (states_files,) = writer.files
    return replace(
        states_files, statistics=files.statistics, histograms=files.histograms, frequencies=files.frequencies
    )


def _has_states(row: ColumnStatistics) -> bool:
    """Return whether a column has mergeable states.

    A column without values has none.
    """
    return row.type_class is not None or row.distinct_sketch is not None


def write_statistics(store: ObjectStore, path: str, row_count: int, statistics: Sequence[ColumnStatistics]) -> str:
    """Write one `statistics` file; return its path.

    Args:
        store: The table's folder.
        path: The path of the file.
        row_count: Number of rows that the profile describes, stored in the file's metadata.
        statistics: The statistics of the columns, in table order.
    """
    table = build_statistics_table(statistics)
    columns = encode_columns([(row.column, row.field_id) for row in statistics])
    table = table.replace_schema_metadata({ROW_COUNT: str(row_count), COLUMNS: columns})
    percentiles = table.schema.field("percentiles")
    has_long_values = table.column("percentiles").nbytes - _SHORT_PERCENTILES * table.num_rows > _LONG_VALUES
    encoding = MinimalParquet(
        zstd_columns=() if table.num_rows <= _FEW_ROWS else None,
        dictionary_columns=tuple(leaf_paths(percentiles, percentiles.name)) if has_long_values else (),
    )
    with store.parquet_writer(path, table.schema, ParquetOptions(minimal=encoding)) as writer:
        writer.write_table(table, _ROWS_PER_GROUP)
    return path


def write_states(store: ObjectStore, folder: str, spec: ProfileSpec, row_count: int, states: pa.Table) -> ProfileFiles:
    """Write merged states to one file, which only merges read.

    Return the files of the profile.

    Args:
        store: The table's folder.
        folder: The folder of the file.
        spec: The profile spec.
        row_count: Number of rows that the states describe.
        states: The states, with a row for each column. If the table has no columns, `states` has no rows, and a
            `statistics` file is written instead.
    """
    if not states.num_rows:  # A table without columns has no states, but a number of rows.
        return write_profile(store, folder, spec, ProfileContent(row_count, (), ()))
    with StatesWriter(store, folder, StatesContent(value_union(spec))) as writer:
        writer.begin(row_count)
        writer.add_table(states)
    (files,) = writer.files
    return files


def shown_histogram(histogram: Histogram, row: ColumnStatistics) -> Histogram:
    """Return the histogram as it is shown to users, with at most max(2, number of distinct values) bins.

    Args:
        histogram: The histogram of the column.
        row: The statistics of the column. If the distinct count is unknown, the number of values replaces it.
    """
    max_bins = max(2, row.value_count if row.distinct_count is None else row.distinct_count)
    return histogram if len(histogram) <= max_bins else histogram.rebin(max_bins)
