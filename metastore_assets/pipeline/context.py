"""The objects that every stage of a refresh needs: a module by itself, because the modules of all stages import it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metastore_assets.config import TableConfig
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore


def ignore_progress(progress: Progress) -> None:
    """Do nothing with reported progress."""


@dataclass(frozen=True)
class RefreshContext:
    """The table of one refresh, its store, and the engine that runs the tasks."""

    engine: Engine
    versions: VersionStore
    table: TableConfig
    """The configuration of the table, with the key of its hidden values."""
    progress: Callable[[Progress], None] = ignore_progress
    keep_versions: int = 1
    """Number of versions that are retained, each with the profiles of fragments that it removed."""

    @property
    def objects(self) -> ObjectStore:
        """The table's folder below the Metastore's root."""
        return self.versions.objects
