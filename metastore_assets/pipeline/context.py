"""The context that all stages of a refresh share.

This is a separate module, because the modules of all stages import it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metastore_assets.config import TableConfig
from metastore_assets.exports.export_result import ExportResult
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.store.versions import VersionStore


def ignore_progress(progress: Progress) -> None:
    """Do nothing: the default progress callback."""


@dataclass(frozen=True)
class RefreshContext:
    """The table, its store, and the engine that runs tasks."""

    engine: Engine
    versions: VersionStore
    table: TableConfig
    """The configuration of the table, with the key that hashes its hidden values."""
    progress: Callable[[Progress], None] = ignore_progress
    keep_versions: int = 1
    """Number of versions to retain. The profiles of fragments that these versions removed are retained as well."""

    @property
    def objects(self) -> ObjectStore:
        """The table's folder below the Metastore's root."""
        return self.versions.objects


def export_version(context: RefreshContext, version: Version) -> tuple[ExportResult, ...]:
    """Write a published version to the table's export targets.

    Return one result for each target.

    If the table has a newer version by now, that one is written instead. A target that already has the version to write
    is skipped. An error of a target is reported in its result.
    """
    if not context.table.exports:
        return ()
    from metastore_assets.exports.writing import write_exports  # it imports lookups, which few refreshes need

    versions = context.versions

    def newest() -> Version:
        return versions.latest() or version if versions.newest() > version.number else version

    context.progress(Progress(context.table.name, "export"))
    return write_exports(context.table, context.objects, newest)
