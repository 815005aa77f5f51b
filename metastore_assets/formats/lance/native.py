"""Functions that read through pylance.

Only child processes and Spark's workers call them.

pylance is native code: a corrupt file may end its process.

A fragment has data files with different columns, and a deletion file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from threading import Timer
from time import tzset
from typing import Any, TypeVar

import pyarrow as pa

from metastore_assets.digests import digest_json
from metastore_assets.formats.lance.schema import arrow_fields
from metastore_assets.formats.lance.versions import LanceVersion
from metastore_assets.storage.corrupt_input import UnsupportedError
from metastore_assets.storage.io_counters import record_read
from metastore_assets.values.columns import FIELD_ID

_CACHED_DATASETS = 4
_PANIC = "pyo3_runtime"
STALL_SECONDS = 180
"""Seconds within which pylance must return the next batch. A batch has about 32 MiB."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A file of a fragment, by its path below a folder."""

    base: tuple[str, bool] | None
    """(folder, whether it is that of a Lance table); None for the folder of the version's branch."""
    path: str
    """The path below the folder, such as `data/x.lance`."""


@dataclass(frozen=True, slots=True)
class FragmentMetadata:
    """The record of one fragment in a manifest."""

    number: int
    """The fragment's number in the table."""
    id: str
    """Digest of the data files and the deletion file."""
    files: tuple[BaseFile, ...]
    """The data files, then the deletion file."""
    bytes: int | None
    """Size of the data files in bytes; None if it is not recorded."""
    row_count: int | None
    """Number of live rows; None if it is not recorded."""


@dataclass(frozen=True)
class VersionContent:
    """The commit time, schema and fragments of a version."""

    committed_at: datetime
    schema: pa.Schema
    """The columns with their field ids."""
    fragments: tuple[FragmentMetadata, ...]


@dataclass(frozen=True)
class LanceDifference:
    """The difference between an earlier version of a table and the current one."""

    earlier_committed_at: datetime
    earlier_schema: pa.Schema
    current: VersionContent
    """The current version, with only the fragments that were added."""
    removed: tuple[FragmentMetadata, ...]
    """The fragments that only the earlier version has."""


def read_commit_time(version: LanceVersion) -> datetime:
    """Return the commit time of a version, in UTC."""
    with lance_errors():
        return _commit_time(open_dataset(version))


def read_version_at(versions: Sequence[LanceVersion], moment: datetime) -> int | None:
    """Return the number of the newest version committed at or before `moment`; None if all are later.

    Versions that were removed since they were listed are ignored.
    """
    times = {}
    for version in versions:
        with lance_errors(), suppress(FileNotFoundError):
            times[version.number] = _commit_time(open_dataset(version))
    return max((number for number, time in times.items() if time <= moment), default=None)


def read_version(version: LanceVersion) -> VersionContent:
    """Return the content of a version, from its manifest."""
    with lance_errors():
        dataset = open_dataset(version)
        schema = pa.schema(arrow_fields(dataset.schema, dataset.lance_schema.fields(), FIELD_ID))
        bases = {number: (base.path, base.is_dataset_root) for number, base in dataset.base_paths().items()}
        fragments = tuple(fragment_metadata(fragment, bases) for fragment in dataset.get_fragments())
        return VersionContent(_commit_time(dataset), schema, fragments)


def read_difference(earlier: LanceVersion, version: LanceVersion) -> LanceDifference:
    """Return the difference between two versions, from their manifests."""
    before, now = read_version(earlier), read_version(version)
    ids_before, ids_now = ({fragment.id for fragment in content.fragments} for content in (before, now))
    added_fragments = tuple(fragment for fragment in now.fragments if fragment.id not in ids_before)
    removed_fragments = tuple(fragment for fragment in before.fragments if fragment.id not in ids_now)
    return LanceDifference(
        before.committed_at,
        before.schema,
        VersionContent(now.committed_at, now.schema, added_fragments),
        removed_fragments,
    )


def open_dataset(version: LanceVersion) -> Any:
    """Return pylance's dataset of a version, from a cache of recent ones.

    Raises FileNotFoundError if the version was removed.
    """
    version.location.check(version.manifest)
    try:
        return _open_dataset(version)
    except (OSError, ValueError):
        # If the manifest was removed after the check, the error of pylance says so only in its text.
        version.location.stat(version.manifest.path)
        raise


@lru_cache(maxsize=_CACHED_DATASETS)
def _open_dataset(version: LanceVersion) -> Any:
    import lance  # importing it takes a second

    location = version.location
    record_read(version.manifest_path, version.manifest.size)
    return lance.dataset(location.uri, version=version.number, storage_options=dict(location.options) or None)


def fragment_metadata(fragment: Any, bases: Mapping[int, tuple[str, bool]]) -> FragmentMetadata:
    """Return what the manifest records about a fragment.

    Args:
        fragment: pylance's fragment.
        bases: the base paths that the manifest records, by the id with which files refer to them. Each is (folder,
            whether it is the folder of a Lance table).

    Raises:
        UnsupportedError: the fragment has overlay files, which replace values of data files.
        LookupError, ValueError: the record is invalid.
    """
    metadata = fragment.metadata
    if metadata.overlays:
        raise UnsupportedError("a fragment has overlay files, which have no reader")
    data_files = [(file.fields, file.column_indices, file.file_size_bytes) for file in metadata.files]
    files = [_data_file(file, bases) for file in metadata.files]
    sizes = [size for _, _, size in data_files]
    rows, deletion, deleted_rows = metadata.physical_rows, metadata.deletion_file, 0
    if deletion is not None:
        base = None if deletion.base_id is None else bases[deletion.base_id]
        files.append(BaseFile(base, deletion.path(metadata.id)))
        deleted_rows = deletion.num_deleted_rows
    has_row_count = rows is not None and deleted_rows is not None and deleted_rows <= rows
    identity = [data_files, [(file.base, file.path) for file in files], rows, deleted_rows]
    return FragmentMetadata(
        metadata.id,
        digest_json(identity),
        tuple(files),
        sum(sizes) if None not in sizes else None,
        rows - deleted_rows if has_row_count else None,
    )


def _data_file(file: Any, bases: Mapping[int, tuple[str, bool]]) -> BaseFile:
    path = str(file.path)
    if file.base_id is None:
        return BaseFile(None, f"data/{path}")
    base = bases[file.base_id]
    return BaseFile(base, f"data/{path}" if base[1] else path)


def _commit_time(dataset: Any) -> datetime:
    """Return the commit time of pylance's dataset, in UTC.

    May change the time zone of this process for a moment.
    """
    local: datetime = dataset.get_version()["timestamp"]  # without a zone
    if local.astimezone(UTC) == local.replace(fold=1).astimezone(UTC):
        return local.astimezone(UTC)
    # The clock showed this time twice, at the end of daylight saving time.
    with _utc_process():
        time: datetime = dataset.get_version()["timestamp"]
    return time.replace(tzinfo=UTC)


@contextmanager
def _utc_process() -> Iterator[None]:
    """Set the time zone of this process to UTC in the block."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC0"
    tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        tzset()


def call_or_end(function: Callable[[], T]) -> T:
    """Return the result of a call of pylance, or abort this process after STALL_SECONDS.

    For some corrupt files, pylance never returns, and allocates ever more memory.
    """
    timer = Timer(STALL_SECONDS, os.abort)
    timer.daemon = True
    timer.start()
    try:
        return function()
    finally:
        timer.cancel()


@contextmanager
def lance_errors() -> Iterator[None]:
    """Convert a panic of pylance's Rust code to ArrowInvalid."""
    try:
        yield
    except BaseException as error:  # A panic is no Exception.
        if type(error).__module__ != _PANIC:
            raise
        raise pa.ArrowInvalid(str(error)) from error
