"""The probe of a commit sensor: newest version and current snapshot of a table, with caching between ticks."""

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
"""Seconds for which the table's format is cached. Another format's metadata beside an unchanged table is noticed only
after that time."""


@dataclass(frozen=True)
class ProbeResult:
    """What a probe read from the configuration, the root and the table."""

    table: TableConfig
    """The table as configured now, with the key of its hidden values, exactly as runs use it."""
    configured_json: str
    """The table's configuration as written, as JSON."""
    latest: Version | None
    """The newest version."""
    now: SnapshotReference | None
    """The table's current snapshot; None if the table does not exist."""
    history_change: HistoryChange = None
    """The change of history between the version's snapshot and the current one; None after ordinary commits."""
    absence: str = ""
    """The object that does not exist."""


class TableProbe:
    """A repeatable probe of one table.

    While nothing changes it makes three requests to an object store: whether the newest version still exists, whether
    there is a newer one, and the end of the table's log.
    """

    def __init__(self, configuration: Configuration, table: str) -> None:
        self._configuration = configuration
        self._name = table
        self._root: MetastoreConfig | None = None
        self._version: tuple[Version, ObjectInfo] | None = None
        self._cached_metadata: dict[bytes, bytes] = {}
        """Metadata of the table that probes have read since that version was published."""
        self._format: tuple[TableConfig, str, float] | None = None
        """The configured table, its format, and when the format was detected."""

    def probe(self, report_progress: Callable[[str], None]) -> ProbeResult:
        """Read the newest version and the table's current snapshot.

        Args:
            report_progress: Called with the object that is read next, for the message of a timeout.

        Raises:
            MetastoreError: The configuration, the root or the table cannot be read; the tick then fails.
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
            # A different `at` in the configuration is not a change of the table's history.
            history_change = opened.history_change(described, now) if now != described and table.at is None else None
            return ProbeResult(table, configured_json, latest, now, history_change)
        except TableNotFoundError as error:
            return ProbeResult(
                table, configured_json, latest, None, absence=missing_table_reason(error) if latest else str(error)
            )

    def configured(self) -> str:
        """Return the table's current configuration as written, as JSON."""
        return self._configuration.shown().table(self._name).model_dump_json()

    def _latest(self, config: MetastoreConfig) -> Version | None:
        """Return the newest version. A cached one is returned if it is unchanged and has no successor."""
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
        """Return the opened table and its current snapshot."""
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
                pass  # The format may have changed; opening the table without a cached format reports the right error.
        opened = open_table_format(table, cache)
        now = opened.current()
        self._cached_metadata = dict(cache.entries)
        if latest is not None and now == SnapshotReference(latest.snapshot, latest.committed_at):
            # The catalog decides a table's format; without one, the version's format is right while the snapshot is
            # unchanged.
            self._format = (table, latest.format, time.monotonic()) if table.catalog is None else None
        return opened, now


def _is_root(one: MetastoreConfig, other: MetastoreConfig) -> bool:
    return (one.root, one.storage_options) == (other.root, other.storage_options)
