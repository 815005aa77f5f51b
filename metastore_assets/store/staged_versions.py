"""Staged versions: the finished parts of a table's first version, which is computed in batches of fragments (*lots*).

    <root>/<table>/staged/<n>.json    the document of a version with the first n lots

Readers do not see staged versions. The last staged version has all fragments. It is published as version 1, without
rewriting its files. An interrupted refresh continues from the newest staged version. `expire` retains the files of
staged versions while the table has no published version.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, StoreError
from metastore_assets.store.documents import Documents
from metastore_assets.store.manifest import FragmentEntry, Version
from metastore_assets.store.version_document import load_version
from metastore_assets.store.versions import STAGED, VersionStore


class StagedVersions(VersionStore):
    """The staged versions of a table that has no published version yet.

    Staged versions are numbered 1, 2, …, independently of published versions.
    """

    def __init__(self, versions: VersionStore, folder: str = STAGED) -> None:
        """Open the staged versions in a folder. A purge uses another folder for the version that it writes in lots.

        Args:
            versions: The version store of the table.
            folder: The folder. The default is that of a table's first version.
        """
        self._initialize(versions.table, versions.objects)
        self._folder = folder
        self.documents = Documents(self.objects, folder)

    def publish(self, version: Version, base: Version | None = None) -> None:
        """Stage a version.

        Args:
            version: The version. Its number is replaced by that of the next staged version.
            base: The staged version before; None if there is none.

        Raises:
            VersionConflictError: Another process has staged a version meanwhile.
            StoreError: Writing failed.
        """
        super().publish(replace(version, number=1 if base is None else base.number + 1), base)

    def pending(self, attempt: str = "") -> list[FragmentEntry]:
        """Return the saved profiles, as `VersionStore.pending` does.

        Saved profiles may belong to any lot, so every lot reads all of them. `clear_pending` therefore does not clear
        profiles that were only read.
        """
        saved_paths = set(self._pending_paths)
        entries = super().pending(attempt)
        self._pending_paths = saved_paths
        return entries

    def clear_pending(self) -> None:
        """Clear the pending profiles that this object saved."""
        super().clear_pending()

    def remove_documents(self) -> None:
        """Remove the documents of all staged versions, and leave their other files to `expire`."""
        self._latest = None
        self.objects.delete_folder(self._folder)

    def remove(self) -> None:
        """Remove the documents of all staged versions, and all of their files that the newest one does not use.

        The published version may reference the files of the newest staged version. If not, `expire` removes them.
        `expire` also removes the files of staged versions that cannot be read.
        """
        manifests = []
        for number in self.numbers():
            with suppress(StoreError):
                manifests.append(load_version(self.documents, number).garbage_manifest)
        paths = [path for manifest in manifests if manifest is not None for path in self._garbage(manifest)]
        self.remove_documents()
        self.objects.delete(paths)

    def _garbage(self, manifest: str) -> list[str]:
        """Return the paths in a garbage manifest, and the manifest's own path; none if it is missing or damaged."""
        try:
            return [*self.objects.read_parquet(manifest).column(0).to_pylist(), manifest]
        except (ObjectNotFoundError, CorruptionError):
            return []
