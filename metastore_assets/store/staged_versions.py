"""Staged versions: the finished parts of a first version that is computed in batches (*lots*).

    <root>/<table>/staged/<n>.json    the document of a version with the first n lots

A lot is a batch of fragments. A fragment is a data file with its deletes, and its profile is its statistics. Readers do
not see staged versions. An interrupted refresh continues from the newest one. The last one has all fragments, and is
published as version 1 without rewriting its files. `expire` retains the files of staged versions while the table has no
published version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from metastore_assets.errors import (
    CorruptionError,
    ObjectNotFoundError,
    StoreError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.store.documents import Documents
from metastore_assets.store.version import FragmentEntry, Version
from metastore_assets.store.version_document import load_version
from metastore_assets.store.versions import STAGED, VersionStore

PUBLISHED_BY_ANOTHER = "another process has published the first version"


@contextmanager
def reading_staged(versions: VersionStore) -> Iterator[None]:
    """Raise VersionConflictError if the block misses files because another process published version 1.

    That process removes the staged versions, which this process reads.
    """
    try:
        yield
    except (CorruptionError, ObjectNotFoundError, VersionNotFoundError) as error:
        if versions.newest():
            raise VersionConflictError(PUBLISHED_BY_ANOTHER) from error
        raise


class StagedVersions(VersionStore):
    """The staged versions in one folder of a table, numbered 1, 2, ….

    By default, they lead to the first published version of the table. A purge (`metastore purge`), which publishes the
    newest version again without some profiles, also works by staged versions.
    """

    def __init__(self, versions: VersionStore, folder: str = STAGED) -> None:
        """Open the staged versions in a folder.

        Args:
            versions: The version store of the table.
            folder: The folder. The default is that of a table's first version. A purge uses another one.
        """
        self._initialize(versions.table, versions.objects)
        self._folder = folder
        self.documents = Documents(self.objects, folder)

    def publish(self, version: Version, base: Version | None = None, *, may_merge: bool = True) -> None:
        """Stage a version.

        Args:
            version: The version. Its number is replaced by that of the next staged version.
            base: The previous staged version; None if there is none.
            may_merge: Whether segments (sorted files of entries) may be merged if many entries changed.

        Raises:
            VersionConflictError: Another process has staged a version meanwhile.
            StoreError: Writing failed.
        """
        number = 1 if base is None else base.number + 1
        super().publish(replace(version, number=number), base, may_merge=may_merge)

    def pending(self, attempt: str = "") -> list[FragmentEntry]:
        """Return the profiles that earlier, unfinished runs (attempts) saved.

        A later call of `clear_pending` clears only the profiles that `save_pending` of this object saved. The other
        profiles stay, because later lots may need them.

        Args:
            attempt: Name of the attempt that saved the profiles; empty for all attempts.
        """
        saved_paths = set(self._pending_paths)
        entries = super().pending(attempt)
        self._pending_paths = saved_paths
        return entries

    def clear_pending(self) -> None:
        """Clear the pending profiles that this object saved, so that later attempts ignore them.

        Profiles that it only read stay pending.
        """
        super().clear_pending()

    def remove_documents(self) -> None:
        """Remove the documents of all staged versions.

        All other files of the staged versions stay.
        """
        self._latest = None
        self.objects.delete_folder(self._folder)

    def remove(self) -> None:
        """Remove all staged versions, and their files except those of the newest one.

        The files of the newest one stay, because the published version may reference them. `expire` removes those that
        the published version does not reference.
        """
        manifests: list[str] = []
        listed_paths: list[str] = []
        for number in self.numbers():
            with suppress(StoreError):
                version = load_version(self.documents, number)
                listed_paths += version.garbage
                manifests += [] if version.garbage_manifest is None else [version.garbage_manifest]
        self.remove_documents()
        self.objects.delete(listed_paths)
        for manifest in manifests:
            self.objects.delete(self._garbage(manifest))

    def _garbage(self, manifest: str) -> list[str]:
        """Return the paths that a garbage manifest lists, then its own path; [] if it is missing or damaged.

        A garbage manifest is a file that lists files which the previous version references and its own version does
        not.
        """
        try:
            return [*self.objects.read_parquet(manifest).column(0).to_pylist(), manifest]
        except (ObjectNotFoundError, CorruptionError):
            return []
