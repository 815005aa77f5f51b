"""The objects that every stage of a refresh needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metastore_assets.config import TableConfig
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore


def ignore_progress(progress: Progress) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True)
class RefreshContext:
    """One table, its store, and the engine that does the work."""

    engine: Engine
    versions: VersionStore
    table: TableConfig
    """With the key of its hidden values, if it has any."""
    progress: Callable[[Progress], None] = ignore_progress
    keep_versions: int = 1
    """Number of versions that are kept, each with the profiles of fragments that it removed."""

    @property
    def objects(self) -> ObjectStore:
        """The table's folder below the Metastore's root."""
        return self.versions.objects
