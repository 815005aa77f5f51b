"""Lance tables.

Snapshots are versions; a fragment has data files with different columns, and a deletion file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.expressions.partition_keys import UNPARTITIONED
from metastore_assets.formats.base import (
    Fragment,
    HistoryChange,
    NoDiff,
    Snapshot,
    SnapshotDiff,
    SnapshotMetadata,
    SnapshotReference,
    TableFormat,
    history_change_by_number,
    history_change_by_time,
    retry_while_files_are_removed,
)
from metastore_assets.formats.bounds import FragmentBounds, bounds_table, column_path
from metastore_assets.formats.lance.fragment import LanceFragmentSource
from metastore_assets.formats.lance.native import (
    BaseFile,
    FragmentMetadata,
    LanceDifference,
    VersionContent,
    read_commit_time,
    read_difference,
    read_version,
    read_version_at,
)
from metastore_assets.formats.lance.versions import LanceVersion, list_versions, newest_version, resolve_version
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, unreadable_error
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, table_location
from metastore_assets.tasks.isolation import run_isolated


class LanceFormat(TableFormat):
    """A Lance table at a location.

    Its snapshots are the versions of a branch.
    """

    def __init__(self, table: TableConfig, cache: MetadataCache) -> None:
        self._location = table_location(table)
        self._location_policy = LocationPolicy.of(table, self._location)
        self._at = table.at
        self._cache = cache
        self._time_key = cache_key("lance commit time", self._location.uri)
        self._filter = PartitionFilter.of(table.partitions)

    def snapshot_id(self) -> str:
        """Return the id of the requested version, by default the newest."""
        with _lance_errors(self._location):
            return self._requested_version().id

    def current(self) -> SnapshotReference:
        """Return the id and commit time of the requested version, by default the newest."""
        with _lance_errors(self._location):
            return retry_while_files_are_removed(self._current)

    def _current(self) -> SnapshotReference:
        """Return the requested version with its commit time, which is cached."""
        version = self._requested_version()
        identity = [version.id, *version.manifest]
        cached_entry = self._cache.get(self._time_key, json.loads)
        if cached_entry is not None and cached_entry[0] == identity:
            return SnapshotReference(version.id, datetime.fromisoformat(cached_entry[1]))
        committed_at: datetime = run_isolated(read_commit_time, version.manifest_path, version)
        self._put_time(version, committed_at)
        return SnapshotReference(version.id, committed_at)

    def history_change(self, previous: SnapshotReference, current: SnapshotReference) -> HistoryChange:
        """Return how the table changed other than by ordinary commits: "recreated" or "rolled back".

        The result is None if there were only ordinary commits, or if the kind of change is not known.

        On one branch, version numbers and commit times decide. Between branches, only the commit times decide, and the
        result is never "recreated".
        """
        (branch, number), (current_branch, current_number) = map(_branch_and_number, (previous.id, current.id))
        if number is None or current_number is None or branch != current_branch:
            return history_change_by_time(previous, current)
        return history_change_by_number((number, current_number), previous, current)

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the requested version, from its manifest."""
        with _lance_errors(self._location):
            self._check_no_partition_filter()
            return retry_while_files_are_removed(self._snapshot)

    def _snapshot(self) -> Snapshot:
        version = self._requested_version()
        content: VersionContent = run_isolated(read_version, version.manifest_path, version)
        fragments = self._fragments(version, content.fragments)
        return Snapshot(**vars(self._metadata(version, content)), fragments=fragments)

    def changes(self, since: SnapshotReference) -> SnapshotDiff | NoDiff:
        """Return the difference between version `since` and the requested version.

        The result is a NoDiff if version `since` was removed or is of another branch, if the schema changed, or if the
        table was recreated.
        """
        with _lance_errors(self._location):
            self._check_no_partition_filter()
            version = self._requested_version()
            branch, number = _branch_and_number(since.id)
            if branch != version.branch or number is None:
                return NoDiff(f"the version {since.id} is of another branch")
            earlier = list_versions(self._location, branch).get(number)
            if earlier is None:
                return NoDiff(f"the table no longer has version {since.id}")
            try:
                difference: LanceDifference = run_isolated(read_difference, version.manifest_path, earlier, version)
            except FileNotFoundError:
                return NoDiff(f"version {since.id} was removed meanwhile")
            if difference.earlier_committed_at != since.committed_at:
                return NoDiff(f"the table was recreated since version {since.id}")
            if not difference.earlier_schema.equals(difference.current.schema, check_metadata=True):
                return NoDiff(f"the schema changed since version {since.id}")
            added_fragments = self._fragments(version, difference.current.fragments)
            removed_paths = {(UNPARTITIONED, self._path(earlier, fragment)) for fragment in difference.removed}
            live = {(fragment.partition_key, fragment.path) for fragment in added_fragments}
            metadata = self._metadata(version, difference.current)
        return SnapshotDiff(
            since, metadata, added_fragments, frozenset(removed_paths - live), replaced=frozenset(removed_paths & live)
        )

    def partition_columns(self) -> tuple[str, ...]:
        """Return no columns: Lance tables have no partitions."""
        self.snapshot_id()
        return ()

    def bounds(self, snapshot: Snapshot, column: str) -> pa.Table:
        """Return one row per fragment, in which all bounds are absent, because Lance manifests have none."""
        column_path(snapshot.schema, column)
        return bounds_table(snapshot, column, [FragmentBounds()] * len(snapshot.fragments))

    def _requested_version(self) -> LanceVersion:
        if self._at is None:
            return newest_version(self._location)
        return resolve_version(self._location, self._at, self._version_at)

    def _version_at(self, versions: Mapping[int, LanceVersion], moment: datetime) -> int | None:
        number: int | None = run_isolated(read_version_at, self._location.uri, tuple(versions.values()), moment)
        return number

    def _metadata(self, version: LanceVersion, content: VersionContent) -> SnapshotMetadata:
        """Return the metadata of a version's snapshot, and cache its commit time."""
        self._put_time(version, content.committed_at)
        return SnapshotMetadata(
            format="lance",
            id=version.id,
            committed_at=content.committed_at,
            schema=content.schema,
            partition_columns=(),
        )

    def _put_time(self, version: LanceVersion, committed_at: datetime) -> None:
        identity = [version.id, *version.manifest]
        self._cache.put(self._time_key, json.dumps([identity, committed_at.isoformat()]).encode())

    def _fragments(self, version: LanceVersion, recorded_fragments: Iterable[FragmentMetadata]) -> tuple[Fragment, ...]:
        """Return the fragments of a version, sorted by id.

        Raises TableFormatError if two have the same first data file.
        """
        fragments: dict[str, Fragment] = {}
        for metadata in recorded_fragments:
            fragment = self._fragment(version, metadata)
            if fragment.path in fragments:
                raise TableFormatError(f"{version.manifest_path} has the data file {fragment.path} twice")
            fragments[fragment.path] = fragment
        return tuple(sorted(fragments.values(), key=lambda fragment: fragment.id))

    def _fragment(self, version: LanceVersion, metadata: FragmentMetadata) -> Fragment:
        files = tuple(self._resolve(version, file) for file in metadata.files)
        path = self._path(version, metadata)
        source = LanceFragmentSource(version, metadata.number, metadata.id, path, files)
        size = metadata.bytes if metadata.bytes is not None else source.stored_size()
        return Fragment(metadata.id, UNPARTITIONED, path, size, metadata.row_count, source)

    def _path(self, version: LanceVersion, metadata: FragmentMetadata) -> str:
        """Return the path of a fragment's first data file.

        For a fragment without data files, the result is the path of the version's manifest with a suffix:
        `#fragment=3` for the fragment with number 3.
        """
        if not metadata.files:
            return f"{version.manifest_path}#fragment={metadata.number}"
        location, path = self._resolve(version, metadata.files[0])
        return location.full_path(path)

    def _resolve(self, version: LanceVersion, file: BaseFile) -> tuple[Location, str]:
        """Return (location, path below the location) of a file.

        Raises TableFormatError if the location policy, which decides what files a table may refer to, forbids the file.
        Also raises it for a file of another table if it must be read by a path mapping, or with other storage options
        than those of this table. pylance applies neither, so it would look for the file elsewhere.
        """
        if file.base is None:
            return self._location_policy.resolve_relative(version.location, file.path)
        recorded_path = f"{file.base[0].rstrip('/')}/{file.path}"
        location, path = self._location_policy.resolve(recorded_path)
        # pylance would look for such a file elsewhere.
        if (
            location.options != self._location.options
            or self._location_policy.path_mapping.apply(recorded_path) != recorded_path
        ):
            raise TableFormatError(
                f"{self._location.uri}: a version names the file {recorded_path} of another table; pylance can read it "
                "only with the storage options of this table, and without path_mapping"
            )
        return location, path

    def _check_no_partition_filter(self) -> None:
        if self._filter.excludes_partitions:
            raise TableFormatError(
                f"{self._location.uri} is not partitioned by {', '.join(self._filter.columns)}; Lance tables have no "
                "partitions: remove the key `partitions`"
            )


def _branch_and_number(snapshot_id: str) -> tuple[str | None, int | None]:
    """Split a snapshot id, such as `experiment:12`, into branch and number.

    A missing part is None.
    """
    branch, _, number = snapshot_id.rpartition(":")
    return branch or None, int(number) if number.isascii() and number.isdecimal() else None


@contextmanager
def _lance_errors(location: Location) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise TableNotFoundError(f"{location.uri} is no Lance table that can be read: {error}") from error
    except CORRUPTION_ERRORS as error:
        raise unreadable_error(f"{location.uri} cannot be read as a Lance table", error) from error
