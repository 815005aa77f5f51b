"""The files of one profile: written column by column by a task, read back by the next."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, UnsupportedTypeError
from metastore_assets.pipeline.plan import Layout
from metastore_assets.statistics.column import ColumnStatistics
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.histogram import Histogram
from metastore_assets.statistics.profile import ColumnProfile
from metastore_assets.statistics.tables import (
    frequencies_of,
    frequencies_table,
    histograms_of,
    histograms_table,
    statistics_rows,
    statistics_table,
    union_type,
)
from metastore_assets.statistics.types import TypeClass, type_class
from metastore_assets.store.manifest import ProfileFiles
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.sections import SectionReader, SectionWriter

ROW_COUNT = "metastore.row_count"
"""Key of the file metadata of `statistics` that holds the number of rows described."""


class FrequencyWriter:
    """One `frequencies` file: the listed columns in the order they come, a section each, named by field id."""

    def __init__(self, store: ObjectStore, folder: str, layout: Layout) -> None:
        self._union = union_type(layout_classes(layout))
        schema = pa.schema([("column", pa.string()), ("value", self._union), ("frequency", pa.int64())])
        self.path = f"{folder}/{uuid.uuid4().hex}.frequencies.parquet"
        self._writer = SectionWriter(store, self.path, schema)

    def add(self, path: str, field_id: str, frequencies: Frequencies) -> None:
        """Append the values of one column."""
        self._writer.write_section(field_id, frequencies_table(path, frequencies, self._union))

    def __enter__(self) -> FrequencyWriter:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)


class ProfileWriter:
    """Writes the files of one profile under unique names. Use as a context manager, then take `files`."""

    def __init__(self, store: ObjectStore, folder: str, layout: Layout, row_count: int) -> None:
        self._store = store
        self._folder = folder
        self._row_count = row_count
        self._frequencies = FrequencyWriter(store, folder, layout)
        self._statistics: list[ColumnStatistics] = []
        self._histograms: dict[str, Histogram] = {}
        self._stack = ExitStack()
        self.files: ProfileFiles

    def add(self, profile: ColumnProfile) -> None:
        """Take the profile of the next column, in table order."""
        statistics = replace(profile.statistics, position=len(self._statistics))
        self._statistics.append(statistics)
        if profile.histogram is not None:
            self._histograms[statistics.column] = profile.histogram
        if profile.frequencies is not None:
            self._frequencies.add(statistics.column, statistics.field_id, profile.frequencies)

    def __enter__(self) -> ProfileWriter:
        self._stack.enter_context(self._frequencies)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            statistics, histograms = write_statistics(
                self._store, self._folder, self._row_count, self._statistics, self._histograms
            )
            self.files = ProfileFiles(statistics, histograms, (self._frequencies.path,))


def write_statistics(
    store: ObjectStore,
    folder: str,
    row_count: int,
    statistics: list[ColumnStatistics],
    histograms: Mapping[str, Histogram],
) -> tuple[str, str]:
    """Write a `statistics` and a `histograms` file under unique names; returns their paths."""
    name = uuid.uuid4().hex
    return (
        write_statistics_file(store, f"{folder}/{name}.statistics.parquet", row_count, statistics),
        _write(store, f"{folder}/{name}.histograms.parquet", histograms_table(histograms)),
    )


def write_statistics_file(store: ObjectStore, path: str, row_count: int, statistics: list[ColumnStatistics]) -> str:
    """Write one `statistics` file, its rows numbered in the order given; returns its path."""
    table = statistics_table(statistics)
    metadata = {**(table.schema.metadata or {}), ROW_COUNT.encode(): str(row_count).encode()}
    return _write(store, path, table.replace_schema_metadata(metadata))


def read_statistics(store: ObjectStore, files: ProfileFiles) -> tuple[int, dict[str, ColumnStatistics]]:
    """The row count and the statistics of a profile, by field id. Raises CorruptionError."""
    with sound(store, files.statistics):
        table = store.read_parquet(files.statistics)
        row_count = int((table.schema.metadata or {})[ROW_COUNT.encode()])
        return row_count, {row.field_id: row for row in statistics_rows(table)}


def read_histograms(store: ObjectStore, files: ProfileFiles) -> dict[str, Histogram]:
    """The histograms of a profile, by the column paths it was written under. Raises CorruptionError."""
    with sound(store, files.histograms):
        return histograms_of(store.read_parquet(files.histograms))


class FrequencyReader:
    """The listed columns of one profile, whose `frequencies` may lie in several files. Raises CorruptionError."""

    def __init__(self, store: ObjectStore, files: ProfileFiles) -> None:
        self._store = store
        self._stack = ExitStack()
        self._parts: list[tuple[str, SectionReader]] = []
        with self._stack:
            for path in files.frequencies:
                with sound(store, path):
                    self._parts.append((path, self._stack.enter_context(SectionReader(store, path))))
            self._stack = self._stack.pop_all()
        self.listed = frozenset(name for _, part in self._parts for name in part.sections)
        """Field ids of the columns listed."""

    def read(self, field_id: str) -> Frequencies | None:
        """All values of one column; None when it is not listed."""
        for path, part in self._parts:
            if field_id in part.sections:
                with sound(self._store, path):
                    return frequencies_of(part.read_section(field_id))
        return None

    def row_count(self, field_id: str) -> int:
        """Number of values listed for a column."""
        return sum(part.sections[field_id].row_count for _, part in self._parts if field_id in part.sections)

    def __enter__(self) -> FrequencyReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


@contextmanager
def sound(store: ObjectStore, path: str) -> Iterator[None]:
    """For reading what stored state names: it must be there, and make sense. Raises CorruptionError that names it."""
    try:
        yield
    except ObjectNotFoundError as error:
        raise CorruptionError(f"{error}, but is still in use; rebuild with `metastore refresh --full`") from error
    except (pa.ArrowException, UnsupportedTypeError, LookupError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"{store.uri(path)} is damaged ({type(error).__name__}: {error}); rebuild with `metastore refresh --full`"
        ) from error


def layout_classes(layout: Layout) -> list[TypeClass]:
    """The classes of all columns that have values to list."""
    classes = []
    for leaf, _ in layout.leaves:
        try:
            classes.append(type_class(leaf.type))
        except UnsupportedTypeError:
            continue
    return classes


def _write(store: ObjectStore, path: str, table: pa.Table) -> str:
    with store.parquet_writer(path, table.schema) as writer:
        writer.write_table(table)
    return path
