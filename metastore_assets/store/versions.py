"""The versions of one table.

A version is published by one put-if-absent, so that readers see all of it or none of it.

    <root>/<table>/versions/<n>.json                     names the files of the version that entries do not name
    <root>/<table>/entries/<unique>.fragments.parquet    entries of fragments; other kinds of entries have similar files
    <root>/<table>/entries/<unique>.garbage.parquet      lists the files of the previous version that this one does
                                                         not use, if they are too many for the JSON document
    <root>/<table>/pending/<unique>.parquet              lists profiles of attempts that have not published
    <root>/<table>/history/                              a Delta table that outlives the versions

A fragment is a data file with its deletes, and its profile is its statistics. A version has an entry for each fragment,
each partition and so on (see `store.entries`). The JSON document is written last. A crash before that leaves
unreferenced files, which `expire` deletes.

The entries of each kind, and each index, are stored in segments: sorted files that a publication adds and sometimes
merges. An attempt is one run that profiles fragments to publish a version. A purge publishes the newest version again,
without the profiles of removed fragments, and deletes all pending profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from metastore_assets.errors import (
    CorruptionError,
    ObjectNotFoundError,
    StoreError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.startup import pc
from metastore_assets.storage.parallel import parallel_map
from metastore_assets.store.documents import Documents
from metastore_assets.store.entries import (
    CACHE_ERRORS,
    FILE_COLUMNS,
    FRAGMENTS,
    KINDS,
    METADATA_CACHE,
    SHARED_FILES,
    EntryKind,
    StoredEntries,
    derive_paths,
    version_entries,
)
from metastore_assets.store.entry_changes import DuplicateKeyError, EntryChanges, write_entries
from metastore_assets.store.garbage import (
    GARBAGE_BATCH,
    MAX_LISTED,
    drop_outdated,
    garbage_paths,
    write_garbage_manifest,
)
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.pending import FOLDER as PENDING
from metastore_assets.store.pending import (
    PendingFiles,
    clear_pending,
    list_pending_files,
    read_pending,
    remove_cleared,
    save_pending,
    was_saved_since_purge,
)
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.store.version import FragmentEntry, MetadataCacheEntry, Version, repeated_fragment_error
from metastore_assets.store.version_document import OlderFormatError, encode_version, load_version, stored_entries

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig
    from metastore_assets.store.expire import ExpiryCounts
    from metastore_assets.store.sorted_runs import SortedRuns

Result = TypeVar("Result")

_ATTEMPTS = 5
STAGED = "staged"
"""The folder of staged versions, see `store.staged_versions`."""
HISTORY = "history"
"""The folder of the table's history, which `expire` leaves alone."""


class VersionStore:
    """The published versions and the pending profiles of one table under a root."""

    def __init__(self, store: ObjectStore, table: str) -> None:
        self._initialize(table, store.child(table))

    @classmethod
    def of_folder(cls, table: str, objects: ObjectStore) -> VersionStore:
        """Return the version store of a table, given the object store of its folder."""
        versions = cls.__new__(cls)
        versions._initialize(table, objects)
        return versions

    def _initialize(self, table: str, objects: ObjectStore) -> None:
        self.table = table
        self.objects = objects
        """The store of the table's folder. Paths in `ProfileFiles` are relative to it."""
        self.documents = Documents(self.objects)
        self._pending_paths: set[str] = set()
        self._pending_profile_files: set[str] = set()
        self._pending_listing = PendingFiles((), {})
        self.last_purge: int | None = None
        """Result of `purged()` when the newest version was last read; None before."""
        self._latest: Version | None = None
        """The newest version when it was last read."""

    def numbers(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        return self.documents.numbers()

    def newest(self) -> int:
        """Return the number of the newest version, or 0 if there is none.

        Takes a few requests.
        """
        return self.documents.newest()

    def latest(self) -> Version | None:
        """Return the newest version, or None if there is none."""
        latest = self._latest
        hint = self.documents.read_hint()
        if hint > (latest.number if latest is not None else 0):
            loaded, has_newer = self._load_with_next(hint)
            latest = loaded or latest
            number = hint if loaded and not has_newer else self.documents.newest(hint if loaded else 0, hint)
        else:
            number = self.documents.newest(latest.number if latest is not None else 0, hint)
        if latest is None or latest.number != number:
            latest = self.read(number) if number else None
        self._latest = latest
        self.last_purge = latest.purged if latest is not None else 0
        return latest

    def _load_with_next(self, number: int) -> tuple[Version | None, bool]:
        """Return (a version, whether the next one exists).

        The version is None if it cannot be read. Both requests are made at the same time.
        """
        loaded: list[Version] = []

        def load() -> bool:
            with suppress(StoreError):
                loaded.append(load_version(self.documents, number))
            return bool(loaded)

        def has_next() -> bool:
            return self.documents.exists(number + 1)

        requests: list[Callable[[], bool]] = [load, has_next]
        is_loaded, has_newer = parallel_map(lambda request: request(), requests, is_parallel=self.objects.is_remote)
        return loaded[0] if is_loaded else None, has_newer

    def purged(self) -> int:
        """Return the number of the version that the last purge published; 0 before the first purge.

        If the newest version is corrupt, its number is returned, because a purge may have published it.
        """
        try:
            self.latest()
        except CorruptionError:
            self.last_purge = self.newest()
        return self.last_purge or 0

    def read(self, number: int) -> Version:
        """Return one version.

        Raises VersionNotFoundError, which names the existing versions.
        """
        try:
            return load_version(self.documents, number)
        except VersionNotFoundError:
            numbers = self.numbers()
            existing = (
                f"its versions: {_format_ranges(numbers)}"
                if numbers
                else f"run `metastore refresh {self.table}` to publish the first"
            )
            raise VersionNotFoundError(f"table {self.table!r} has no version {number}; {existing}") from None

    def metadata_cache(self) -> Mapping[bytes, bytes]:
        """Return the cached metadata of the table (values by key) that the newest version has.

        If `latest` was called before, its result counts as the newest version, even if newer ones were published since.
        The result is empty if the newest version is corrupt, or if there is no version.
        """
        try:
            latest = self._latest or self.latest()
        except CorruptionError:
            return {}
        return latest.metadata_cache if latest is not None else {}

    def publish(self, version: Version, base: Version | None = None, *, may_merge: bool = True) -> None:
        """Publish a version as the newest.

        Args:
            version: The version. Its number must be one above that of the newest version.
            base: The previous version, as read from this store. Only entries that differ from it are written. None: all
                entries are written.
            may_merge: Whether stored segments of entries may be merged if many entries changed. False if segments of an
                index of the version were merged.

        Raises:
            VersionConflictError: Another publisher was first. Build the version again from `latest()`.
            StoreError: Two fragments of a partition have the same path, or writing failed. After a failed write, the
                version may or may not have been published.
        """
        base_entries = {} if base is None else {entries.kind: entries for entries in stored_entries(base)}
        with self._conflict_if_removed(version.number):
            changes = {
                kind.name: self._entry_changes(version, kind, base_entries.get(kind))
                for kind in KINDS
                if kind not in (SHARED_FILES, METADATA_CACHE)
            }
            # Readers of versions do not need the modules that only publishing and expiry use.
            from metastore_assets.store.merged_set import count_changed_keys, set_to_merge
            from metastore_assets.store.shared_files import count_references

            counts, garbage = count_references(version, base, changes, base_entries.get(SHARED_FILES))
            changes[SHARED_FILES.name] = counts
            # In a small commit, only one kind of entries may merge a part of its older segments.
            stepping = version.number % len(changes)
            merged_set = set_to_merge(base, count_changed_keys(changes.values())) if may_merge else ""
            entries = {
                name: write_entries(self.objects, each, allow_step=number == stepping, may_merge=name == merged_set)
                for number, (name, each) in enumerate(changes.items())
            }
            entries[METADATA_CACHE.name] = self._write_metadata_cache(version, base_entries.get(METADATA_CACHE))
            listed_paths = () if base is None else garbage_paths(garbage, entries, base)
            manifest = write_garbage_manifest(self.objects, listed_paths) if len(listed_paths) > MAX_LISTED else None
        version = replace(version, garbage_manifest=manifest, garbage=() if manifest else listed_paths)
        self._latest = None
        try:
            self._check_previous(version.number)
            self.documents.publish(version.number, encode_version(version, entries, base))
        except VersionConflictError:
            new_files = {path for files in entries.values() for path in files.paths()} | {manifest or ""}
            reused_files = {
                "",
                *(path for kind_entries in base_entries.values() for path in kind_entries.files.paths()),
            }
            with suppress(StoreError):  # `expire` deletes what stays.
                self.objects.delete(sorted(new_files - reused_files))
            raise self._conflict(version.number, self.documents.newest() or version.number) from None

    @contextmanager
    def _conflict_if_removed(self, number: int) -> Iterator[None]:
        """Raise VersionConflictError if the block misses an object, and the previous version was removed.

        The previous version is the one before `number`.
        """
        try:
            yield
        except ObjectNotFoundError:
            self._check_previous(number)
            raise

    def _check_previous(self, number: int) -> None:
        """Raise VersionConflictError if a version of this number may have been published and deleted.

        Creating the document of a version fails if the document exists. It would not fail if another process had
        published this version, and a purge or an expiry had deleted the document. Deletions begin with the oldest
        document, so the document of the previous version is then missing, too. Therefore, if that document is missing
        or `number` is 1, `number` is compared with the number of the newest version. The error is raised unless
        `number` is one above it. `publish` calls this method directly before it creates the document, because writing
        entries takes time.
        """
        if number == 1 or not self.documents.exists(number - 1):
            newest = self.documents.newest()
            if number != newest + 1:
                raise self._conflict(number, newest)

    def _entry_changes(
        self, version: Version, kind: EntryKind[Any], base: StoredEntries[Any] | None
    ) -> EntryChanges[Any]:
        """Return the entries of a new version as changes of `base`, the entries of the previous version.

        `base` is None if there is no previous version.

        Raises StoreError if fragments have equal keys.
        """
        try:
            return EntryChanges.between(kind, base, version_entries(version, kind))
        except DuplicateKeyError as error:
            if kind is not FRAGMENTS:
                raise
            raise repeated_fragment_error(self.table, error.key) from error

    def _write_metadata_cache(self, version: Version, base: StoredEntries[MetadataCacheEntry] | None) -> SegmentFiles:
        """Write the metadata cache of a version, as changes of the published cache `base`.

        Return the cache's files.

        If `base` cannot be read, a new cache is written, with only the new values. `base` is None if there is none.
        """
        entries = version_entries(version, METADATA_CACHE)
        try:
            changes = EntryChanges.between(METADATA_CACHE, base, entries)
            return write_entries(self.objects, changes, allow_step=True, may_merge=True)
        except CACHE_ERRORS:
            values = entries.put_entries.values() if isinstance(entries, EntryChanges) else entries
            changes = EntryChanges.changed(METADATA_CACHE, None, values)
            return write_entries(self.objects, changes, allow_step=True, may_merge=True)

    def with_newest(self, function: Callable[[Version | None], Result]) -> Result:
        """Call a function with the newest version; call it again if that version was replaced or removed.

        The function raises VersionConflictError if another process has published, and any StoreError if another process
        has removed the version and its files. It is also called again after the first error for a missing file, because
        an expiry with a short grace period may have removed a file that the function wrote.

        Args:
            function: Gets the newest version, or None if there is none.

        Raises:
            VersionConflictError: Other processes published or purged during each of `_ATTEMPTS` calls.
            StoreError: The newest version cannot be read. Or the function raised the error, and no removed version is
                the cause: the version that it got still exists, or it got None.
        """
        has_missed_file = False
        for _ in range(_ATTEMPTS):
            newest = self.latest()
            try:
                return function(newest)
            except VersionConflictError:
                continue
            except StoreError as error:
                if is_missing_file(error) and not has_missed_file:
                    has_missed_file = True
                elif newest is None or self.documents.exists(newest.number):
                    raise
        raise VersionConflictError(
            f"table {self.table!r}: other processes published {_ATTEMPTS} versions meanwhile; try again"
        )

    def discard(self, version: Version, base: Version | None) -> None:
        """Delete the value counts and indexes of a version that was built, but not published.

        Value counts are the distinct values of columns with their frequencies. Files that the version shares with
        `base`, the version from which it was built, stay. `base` is None for a first version. Profiles stay for the
        next attempt. Errors are ignored, because `expire` deletes what remains.
        """
        with suppress(StoreError):
            self.objects.delete(sorted(set(version.auxiliary_files()) - set(base.auxiliary_files() if base else ())))

    def delete_unreferenced(self, paths: Iterable[str]) -> None:
        """Delete the files among `paths` that no version references."""
        candidates = pa.array(sorted(set(paths)), pa.string())
        referenced_paths: set[str] = set()
        for array in _referenced_paths(self.documents, self.documents.batches()):
            referenced_paths.update(array.filter(pc.is_in(array, value_set=candidates)).to_pylist())
        self.objects.delete([path for path in candidates.to_pylist() if path not in referenced_paths])

    def drop_outdated(self, newest: int, keep: int, grace: timedelta) -> None:
        """Delete a few of the outdated versions, and the files that only they reference.

        The next call deletes more.

        Args:
            newest: Number of the newest version.
            keep: The number of versions up to `newest` to retain.
            grace: A version is deleted only if the next version is older than this. Cleared pending files are retained
                equally long.
        """
        drop_outdated(self.documents, newest - keep, grace, self._pending_profile_files)
        cleared_paths = self._pending_listing.cleared_before(datetime.now(UTC) - grace)[:GARBAGE_BATCH]
        remove_cleared(self.objects, self._pending_listing, cleared_paths)

    def save_pending(self, entries: Sequence[FragmentEntry], attempt: str = "") -> None:
        """Save profiles as pending, so that later attempts need not read their fragments again.

        Args:
            entries: The entries of the profiled fragments. Without entries, nothing is written.
            attempt: Name by which `pending` can select the profiles of this attempt; empty for none.
        """
        if entries:
            purge_number = self.purged() if self.last_purge is None else self.last_purge
            self._pending_paths.add(save_pending(self.objects, entries, attempt, purge_number))

    def pending(self, attempt: str = "") -> list[FragmentEntry]:
        """Return the profiles that attempts without a published version have saved for later attempts.

        Profiles that `clear_pending` has marked, or that were saved before the last purge, are omitted.

        Args:
            attempt: Name of the attempt that saved the profiles; empty for all attempts.
        """
        entries: dict[tuple[str, str], FragmentEntry] = {}
        self._pending_listing = list_pending_files(self.objects)
        current = self._pending_listing.current(attempt)
        purge_number = self.purged() if current else 0
        for path in current:
            for entry in read_pending(self.objects, path) if was_saved_since_purge(path, purge_number) else ():
                entries[entry.id, entry.spec_id] = entry
                self._pending_profile_files.update(entry.files.paths())
            self._pending_paths.add(path)
        return list(entries.values())

    def clear_pending(self) -> None:
        """Mark the pending profiles that this object saved or read, so that later attempts ignore them.

        Their files are not deleted yet.
        """
        clear_pending(self.objects, sorted(self._pending_paths))
        self._pending_paths.clear()

    def expire(self, keep: int, grace: timedelta, now: datetime | None = None) -> ExpiryCounts:
        """Delete the versions before the newest `keep` ones.

        Then delete unreferenced files older than `grace`.

        Args:
            keep: The number of newest versions to retain, at least 1.
            grace: A time longer than the longest refresh. Versions that were replaced within this time are retained,
                too.
            now: The current time; None for the clock of this machine.

        Raises:
            ValueError: `keep` is less than 1.
            StoreError: A retained version cannot be read. By then, old versions are deleted, but no unreferenced files.
                Or a version that was published meanwhile lacks files that were deleted, because its refresh wrote them
                before the grace period.
        """
        from metastore_assets.store.expire import PATHS, Retention, expire, is_metastore_file
        from metastore_assets.store.sorted_runs import SortedRuns

        if keep < 1:
            raise ValueError("keep must be at least 1: the newest version always stays")
        pending = list_pending_files(self.objects)
        cleared_paths = pending.cleared_before((now or datetime.now(UTC)) - grace)

        staged_documents = Documents(self.objects, STAGED)
        retained_prefixes = tuple(f"{folder}/" for folder in (PENDING, HISTORY, *(() if self.numbers() else (STAGED,))))
        read_numbers: set[int] = set()

        def referenced(batches: Iterator[Sequence[int]]) -> Iterator[pa.Array]:
            """Yield the paths that versions and pending files refer to.

            `batches` yields the numbers of the versions. If it is empty, two kinds of versions are read instead: first
            the staged versions, which are finished parts of a first version, then versions published meanwhile.
            """
            first = next(batches, None)
            if first is None:
                # Staged versions are removed once the first version is published, so its number is read after them.
                # The next refresh does not use those of an earlier release.
                yield from _referenced_paths(
                    staged_documents, staged_documents.batches(), (VersionNotFoundError, OlderFormatError)
                )
                batches = self.documents.batches()
            batches = batches if first is None else chain([first], batches)
            yield from _referenced_paths(self.documents, _record_numbers(batches, read_numbers))
            # Listed after the versions: a refresh saves the profiles of staged versions before it removes these.
            for path in list_pending_files(self.objects).paths_except(cleared_paths):
                # It was removed since it was listed, or no refresh can read it either.
                with suppress(ObjectNotFoundError, CorruptionError):
                    yield from file_paths(self.objects.read_parquet(path))

        retention = Retention(
            lambda numbers: numbers[-keep:][0],
            referenced,
            lambda path: is_metastore_file(path) and not path.startswith(retained_prefixes),
        )
        with SortedRuns(PATHS) as deleted_paths:
            expiry_counts = expire(self.documents, retention, grace, now, deleted_paths)
            self._check_published(read_numbers, deleted_paths)
        remove_cleared(self.objects, pending, cleared_paths)
        return replace(expiry_counts, files=expiry_counts.files + len(cleared_paths))

    def _check_published(self, read_numbers: Collection[int], deleted_paths: SortedRuns) -> None:
        """Raise StoreError if a version references deleted files.

        Args:
            read_numbers: Numbers of the versions whose files were retained. They are not checked.
            deleted_paths: The paths of the deleted files.
        """
        from metastore_assets.store.expire import PATHS
        from metastore_assets.store.sorted_runs import SortedRuns, subtract

        for number in self.numbers():
            if number in read_numbers:
                continue
            with SortedRuns(PATHS) as referenced_paths:
                for paths in _referenced_paths(self.documents, [[number]]):
                    referenced_paths.add_keys(paths)
                deleted_count = sum(map(len, deleted_paths.stream()))
                lost_count = deleted_count - sum(map(len, subtract(deleted_paths, referenced_paths)))
            if lost_count:
                raise StoreError(
                    f"table {self.table!r}: version {number} was published during this expiry, which deleted "
                    f"{lost_count} of its files, because its refresh wrote them before the grace period: run "
                    f"`metastore refresh {self.table} --full`, and choose a grace period longer than any refresh"
                )

    def _conflict(self, number: int, newest: int) -> VersionConflictError:
        return VersionConflictError(
            f"version {number} of table {self.table!r} cannot be published: version {newest} exists; plan again"
        )


def is_missing_file(error: Exception) -> bool:
    """Return whether an error reports that a stored file does not exist."""
    return isinstance(error, ObjectNotFoundError) or (isinstance(error, CorruptionError) and error.missing)


def versions_of(config: MetastoreConfig, table: str) -> VersionStore:
    """Return the versions of a table in the configured root."""
    return VersionStore(ObjectStore(config.root, config.storage_options), table)


def _format_ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers as ranges: `[1, 2, 3, 7]` as `1-3, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _record_numbers(batches: Iterable[Sequence[int]], numbers: set[int]) -> Iterator[Sequence[int]]:
    """Yield the lists of `batches` unchanged, and add the numbers in them to `numbers`."""
    for batch in batches:
        numbers.update(batch)
        yield batch


def _referenced_paths(
    documents: Documents,
    batches: Iterable[Sequence[int]],
    ignored_errors: tuple[type[StoreError], ...] = (VersionNotFoundError,),
) -> Iterator[pa.Array]:
    """Yield the paths of the files that versions reference.

    Raises StoreError if a version cannot be read.

    Args:
        documents: The documents of the versions.
        batches: Yields the numbers of the versions in lists, as `Documents.batches` does.
        ignored_errors: Versions whose documents raise these errors are skipped. By default, those that another process
            deleted.
    """
    following: Version | None = None
    for number in (number for numbers in batches for number in sorted(numbers, reverse=True)):
        try:
            version = load_version(documents, number)
        except ignored_errors:
            continue
        yield from version_file_paths(version)
        # A file of this version is a file of the next one, or in its garbage.
        is_next = following is not None and following.number == number + 1
        yield from _garbage(version, documents.objects, following if is_next else None)
        following = version


def _garbage(version: Version, objects: ObjectStore, following: Version | None) -> Iterator[pa.Array]:
    """Yield the paths of files that a version references and the next one does not.

    The next version lists these paths, in its document or in its garbage manifest. If `following` is None, or this list
    is empty, missing or damaged, the paths of all files that the version's entries name are yielded.

    Args:
        version: The version.
        objects: The table's folder.
        following: The next version, or None.
    """
    if following is not None and following.garbage:
        yield pa.array(following.garbage, pa.string())
        return
    try:
        if following is not None and following.garbage_manifest is not None:
            with objects.open_parquet(following.garbage_manifest) as file:
                for group in range(file.num_row_groups):
                    yield from file.read_row_group(group).column(0).chunks
            return
    except (ObjectNotFoundError, CorruptionError):
        pass  # The manifest was removed or is damaged, so all files count.
    for kind in KINDS:
        with suppress(ObjectNotFoundError):  # its version was removed since it was listed
            yield from profile_paths(version, [kind])


def version_file_paths(version: Version) -> Iterator[pa.Array]:
    """Yield the paths of the files that the document of a version names, except its garbage.

    These are the files of the table's profile, value counts, indexes and entries, and the garbage manifest. Garbage is
    the files of the previous version that this one does not reference.
    """
    yield pa.array([*version.document_paths(), *version.auxiliary_files()], pa.string())
    for entries in stored_entries(version):
        yield pa.array(entries.files.paths(), pa.string())


def profile_paths(version: Version, kinds: Sequence[EntryKind[Any]] = KINDS) -> Iterator[pa.Array]:
    """Yield the paths of the profiles that entries of some kinds reference.

    Paths may repeat, be empty or null.
    """
    for entries in stored_entries(version):
        if entries.kind in kinds and entries.kind.references_files:
            for rows in entries.stream_rows(FILE_COLUMNS):
                yield from file_paths(rows)


def file_paths(rows: pa.Table) -> Iterator[pa.Array]:
    """Yield the paths in the file columns of stored rows, which have all of these columns or none."""
    rows = derive_paths(rows)
    for name in set(FILE_COLUMNS) & set(rows.column_names):
        for chunk in rows.column(name).chunks:
            yield chunk.flatten() if pa.types.is_list(chunk.type) else chunk
