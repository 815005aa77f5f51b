"""The facts about tables that Dagster needs to load a code location: newest version, format, partition columns."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metastore_assets.assets.pending_events import is_partitioned
from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import open_table_format
from metastore_assets.resources.configuration import Configuration
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import versions_of

_TIMEOUT = 5.0
"""Seconds to wait for all tables. Each run loads the code location too."""
_READERS = 8


@dataclass(frozen=True)
class TableInfo:
    """The facts about one table; unknown by default."""

    version: Version | None = None
    """The newest version; None if there is none or it could not be read."""
    partitioned: bool | None = None
    """Whether the table has partition columns in the newest version, or now if it has no version. None if unknown."""

    @property
    def format(self) -> str | None:
        """The table's format in the newest version."""
        return self.version.format if self.version else None


def read_table_info(
    configuration: Configuration, tables: Sequence[str], timeout: float = _TIMEOUT
) -> Mapping[str, TableInfo]:
    """Return the facts about tables, by table name, without tables that cannot be read in time.

    A code location must load even if a root, a table or an environment variable is unavailable. Runs and sensors
    report such errors. If the configuration cannot be resolved, the result is empty.

    A table without a version is opened to read its partition columns, which decide the dependencies of its assets. If
    the dependencies changed after the first result, Dagster would mark this result as outdated.

    Args:
        configuration: The configuration that has the tables.
        tables: The names of the tables.
        timeout: Seconds to wait for all tables together.
    """
    infos: dict[str, TableInfo] = {}
    names = iter(tables)
    try:
        metastore = configuration.resolved()
    except MetastoreError:
        return infos
    lock = threading.Lock()

    def pending_names() -> Iterator[str]:
        while True:
            with lock:
                name = next(names, None)
            if name is None:
                return
            yield name

    def read() -> None:
        """Read the tables that no other thread has taken. Tables that cannot be read are omitted."""
        for name in pending_names():
            try:
                version = versions_of(metastore, name).latest()
                if version is None:
                    infos[name] = TableInfo(None, _has_partitions(metastore.table(name)))
                else:
                    infos[name] = TableInfo(version, is_partitioned(version))
            except Exception:  # noqa: BLE001 (a run will report the error)
                continue

    # Daemon threads instead of an executor, for whose threads Python would wait at exit.
    readers = [threading.Thread(target=read, daemon=True) for _ in range(min(_READERS, len(tables)))]
    end = time.monotonic() + timeout
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(max(0.0, end - time.monotonic()))
    return dict(infos)


def _has_partitions(table: TableConfig) -> bool:
    return bool(open_table_format(table).partition_columns())
