"""The probe of a commit sensor, which reads a table's newest version and current snapshot id.

A version is the published statistics of a table at one snapshot. The root is the folder with all stored state.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from metastore_assets.assets.table_info import TableInfo, store_table_info
from metastore_assets.checks.table_checks import missing_table_reason
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError, TableNotFoundError
from metastore_assets.formats import HistoryChange, MetadataCache, SnapshotReference, TableFormat, open_table_format
from metastore_assets.pipeline.hidden_values import with_hidden_key
from metastore_assets.resources.configuration import Configuration
from metastore_assets.store.backend import ObjectInfo
from metastore_assets.store.version import Version
from metastore_assets.store.versions import versions_of

_FORMAT_CACHE_SECONDS = 600.0
"""Seconds for which the detected format of a table is cached. If the format of a table changes while its metadata in
the old format stay, probes notice it after this time."""


@dataclass(frozen=True)
class ProbeResult:
    """What a probe has read from the configuration, the root and the table."""

    table: TableConfig
    """The configuration of the table with the values of variables and the key for hidden values, as runs have it."""
    configuration_json: str
    """The table's configuration as JSON, in which variables are not replaced."""
    latest: Version | None
    """The newest version; None before the first."""
    current: SnapshotReference | None
    """The table's current snapshot; None if the table does not exist."""
    history_change: HistoryChange = None
    """How the table got from the newest version's snapshot to the current one; None for ordinary commits."""
    absence: str = ""
    """The message that the table, or the configured snapshot, does not exist; empty if it exists."""


class TableProbe:
    """A probe of one table that can be repeated, with a cache between ticks.

    While nothing changes, a probe takes three requests to an object store.
    """

    def __init__(self, configuration: Configuration, table: str) -> None:
        self._configuration = configuration
        self._name = table
        self._root: MetastoreConfig | None = None
        self._version: tuple[Version, ObjectInfo] | None = None
        self._cached_metadata: dict[bytes, bytes] = {}
        """Metadata of the table that earlier probes have read. It is cleared when another version is read."""
        self._format: tuple[TableConfig, str, float] | None = None
        """The table's configuration, its format, and the time when the format was detected; None without a cached
        format."""

    def probe(self, report_progress: Callable[[str], None]) -> ProbeResult:
        """Read the newest version and the table's current snapshot.

        Args:
            report_progress: Called with the name of an object, such as `the root s3://b/r`, before the object is read.
                The message of a timeout contains the last name.

        Raises:
            MetastoreError: The configuration, the root or the table cannot be read; the tick then fails.
        """
        report_progress("the source of the configuration's credentials")
        config = self._configuration.resolved()
        table = config.table(self._name)
        configuration_json = self.configuration_json()
        report_progress(f"the root {config.root}")
        table = with_hidden_key(config, table)
        latest = self._read_latest(config)
        report_progress(f"the table {table.uri}")
        try:
            table_format, current = self._read_current(table, latest)
            if latest is None:
                return ProbeResult(table, configuration_json, None, current)
            described_snapshot = SnapshotReference(latest.snapshot, latest.committed_at)
            # With `at` the configuration selects the snapshot, so that another one is no change of the history.
            has_changed = current != described_snapshot and table.at is None
            history_change = table_format.history_change(described_snapshot, current) if has_changed else None
            return ProbeResult(table, configuration_json, latest, current, history_change)
        except TableNotFoundError as error:
            return ProbeResult(
                table, configuration_json, latest, None, absence=missing_table_reason(error) if latest else str(error)
            )

    def configuration_json(self) -> str:
        """Return the table's configuration as JSON, in which variables are not replaced."""
        return self._configuration.unresolved().table(self._name).model_dump_json()

    def _read_latest(self, config: MetastoreConfig) -> Version | None:
        """Return the newest version of the table; None if no version is published.

        If the cached version is still the newest one, it is returned. Otherwise the version is read, and the table's
        format and partitioning are written to the root for the next load of definitions.
        """
        versions = versions_of(config, self._name)
        documents = versions.documents
        if self._version is not None and self._root is not None and _has_same_root(self._root, config):
            cached_version, cached_info = self._version
            if versions.objects.info(cached_info.path) == cached_info and not documents.exists(
                cached_version.number + 1
            ):
                return cached_version
        self._version, self._cached_metadata = None, {}
        latest = versions.latest()
        if latest is not None:
            # Definitions that are loaded later read the format and partitioning from the root.
            store_table_info(config, {self._name: TableInfo.of(latest)})
        info = versions.objects.info(documents.path(latest.number)) if latest else None
        if latest is not None and info is not None:
            self._root, self._version = config, (latest, info)
        return latest

    def _read_current(self, table: TableConfig, latest: Version | None) -> tuple[TableFormat, SnapshotReference]:
        """Open the table, and return its table format object and its current snapshot.

        The cached format is tried first. If that fails, the format is detected again.
        """
        cache = MetadataCache(lambda: latest.metadata_cache if latest else {})
        for key, value in self._cached_metadata.items():
            cache.put(key, value)
        cached_format, self._format = self._format, None
        if (
            cached_format is not None
            and cached_format[0] == table
            and time.monotonic() - cached_format[2] < _FORMAT_CACHE_SECONDS
        ):
            try:
                table_format = open_table_format(table.model_copy(update={"format": cached_format[1]}), cache)
                current = table_format.current()
                self._format, self._cached_metadata = cached_format, dict(cache.entries)
                return table_format, current
            except MetastoreError:
                pass  # The format may have changed. Detecting it below reports the right error.
        table_format = open_table_format(table, cache)
        current = table_format.current()
        self._cached_metadata = dict(cache.entries)
        if latest is not None and current == SnapshotReference(latest.snapshot, latest.committed_at):
            # Only for a table without a catalog: the catalog decides the format of others.
            self._format = (table, latest.format, time.monotonic()) if table.catalog is None else None
        return table_format, current


def _has_same_root(config: MetastoreConfig, other: MetastoreConfig) -> bool:
    return (config.root, config.storage_options) == (other.root, other.storage_options)
