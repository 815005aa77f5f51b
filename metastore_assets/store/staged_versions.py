"""Staged versions: the finished part of a table's first version, while the version is made in lots of fragments.

    <root>/<table>/staged/<n>.json    the document of a version with the first n lots

Readers do not see staged versions. The last one has all fragments, and is published as version 1 without rewriting its
files. An interrupted refresh continues from the newest staged version. `expire` retains the files of staged versions
while the table has no published version.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, VersionNotFoundError
from metastore_assets.store.documents import Documents
from metastore_assets.store.manifest import Version
from metastore_assets.store.version_document import load_version
from metastore_assets.store.versions import STAGED, VersionStore


class StagedVersions(VersionStore):
    """The staged versions of a table that has no published version yet.

    Staged versions are numbered 1, 2, …, independently of published versions.
    """

    def __init__(self, versions: VersionStore) -> None:
        self._initialize(versions.table, versions.objects)
        self.documents = Documents(self.objects, STAGED)

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

    def remove(self) -> None:
        """Remove all staged versions, and the files that only staged versions before the newest one reference.

        The files of the newest staged version stay. If no published version references them, `expire` removes them.
        """
        manifests = []
        for number in self.numbers():
            with suppress(CorruptionError, VersionNotFoundError):
                manifests.append(load_version(self.documents, number).garbage_manifest)
        paths = [path for manifest in manifests if manifest is not None for path in self._garbage(manifest)]
        self.objects.delete_folder(STAGED)
        self.objects.delete(paths)

    def _garbage(self, manifest: str) -> list[str]:
        """Return the paths in a garbage manifest, and its own path."""
        try:
            return [*self.objects.read_parquet(manifest).column(0).to_pylist(), manifest]
        except ObjectNotFoundError:
            return []
