"""What a commit sensor asks the root and its table, and what it need not ask again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from metastore_assets.checks.table_checks import missing_table_reason
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError, TableNotFoundError
from metastore_assets.formats import HistoryChange, MetadataCache, SnapshotReference, TableFormat, open_table_format
from metastore_assets.pipeline.hidden_values import with_hidden_key
from metastore_assets.resources.configuration import Configuration
from metastore_assets.store.backend import ObjectInfo
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import versions_of

_SURE = 600.0
"""Seconds for which a table is taken to be in the format that it was found in: so long it may take to be noticed that
somebody has put the metadata of another format beside those of a table that itself stays as it is."""


@dataclass(frozen=True)
class ProbeResult:
    """What the configuration, the root and the table say."""

    table: TableConfig
    """As it counts now, not as it was when this process loaded it, with the key of its hidden values: so is what runs
    do."""
    configured_json: str
    """All that the configuration says of the table, as written."""
    latest: Version | None
    """The newest version."""
    now: SnapshotReference | None
    """What the table holds; None when it is not there any more, or not yet where there is no version either."""
    history_change: HistoryChange = None
    """How it came from what the version describes to another state, where that was not by further commits."""
    absence: str = ""
    """What is not there."""


class TableProbe:
    """Looks at one table, again and again in one process. While nothing changes, an object store is asked three times:
    whether the newest version is still there, whether there is a newer one, and for the end of the table's log."""

    def __init__(self, configuration: Configuration, table: str) -> None:
        self._configuration = configuration
        self._name = table
        self._root: MetastoreConfig | None = None
        self._version: tuple[Version, ObjectInfo] | None = None
        self._cached_metadata: dict[bytes, bytes] = {}
        """Of the table, since that version was published: no more than it took to look."""
        self._format: tuple[TableConfig, str, float] | None = None
        """What a table is opened as, by its configuration, and when that was found out."""

    def probe(self, report_progress: Callable[[str], None]) -> ProbeResult:
        """Ask the root and the table, and say by `report_progress` which of them is asked.

        Raises what keeps the table from being read: the tick then shows as failed.
        """
        report_progress("what gives the configuration its credentials")
        config = self._configuration.now()
        table = config.table(self._name)
        configured_json = self.configured()
        report_progress(f"the root {config.root}")
        table = with_hidden_key(config, table)
        latest = self._latest(config)
        report_progress(f"the table {table.uri}")
        try:
            opened, now = self._current(table, latest)
            if latest is None:
                return ProbeResult(table, configured_json, None, now)
            described = SnapshotReference(latest.snapshot, latest.committed_at)
            # Another state that the configuration names is no turn of the table's.
            history_change = opened.history_change(described, now) if now != described and table.at is None else None
            return ProbeResult(table, configured_json, latest, now, history_change)
        except TableNotFoundError as error:
            return ProbeResult(
                table, configured_json, latest, None, absence=missing_table_reason(error) if latest else str(error)
            )

    def configured(self) -> str:
        """All that the configuration says of the table now, as written."""
        return self._configuration.shown().table(self._name).model_dump_json()

    def _latest(self, config: MetastoreConfig) -> Version | None:
        """The newest version; of the one that is known it is asked whether it is that still."""
        versions = versions_of(config, self._name)
        documents = versions.documents
        if self._version is not None and self._root is not None and _is_root(self._root, config):
            known, as_it_was = self._version
            if versions.objects.info(as_it_was.path) == as_it_was and not documents.exists(known.number + 1):
                return known
        self._version, self._cached_metadata = None, {}
        latest = versions.latest()
        info = versions.objects.info(documents.path(latest.number)) if latest else None
        if latest is not None and info is not None:
            self._root, self._version = config, (latest, info)
        return latest

    def _current(self, table: TableConfig, latest: Version | None) -> tuple[TableFormat, SnapshotReference]:
        """The table, and what it holds now. Raises what that does."""
        cache = MetadataCache(lambda: latest.metadata_cache if latest else {})
        for key, value in self._cached_metadata.items():
            cache.put(key, value)
        known, self._format = self._format, None
        if known is not None and known[0] == table and time.monotonic() - known[2] < _SURE:
            try:
                opened = open_table_format(table.model_copy(update={"format": known[1]}), cache)
                now = opened.current()
                self._format, self._cached_metadata = known, dict(cache.entries)
                return opened, now
            except MetastoreError:
                pass  # It may be of another format now; and what is wrong is told by who has not been told which.
        opened = open_table_format(table, cache)
        now = opened.current()
        self._cached_metadata = dict(cache.entries)
        if latest is not None and now == SnapshotReference(latest.snapshot, latest.committed_at):
            # What a catalog has is of the format that it says; what a version is of, its table was when it was made.
            self._format = (table, latest.format, time.monotonic()) if table.catalog is None else None
        return opened, now


def _is_root(one: MetastoreConfig, other: MetastoreConfig) -> bool:
    return (one.root, one.storage_options) == (other.root, other.storage_options)
