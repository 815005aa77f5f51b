"""What is known of the tables when a code location is loaded: their newest versions, where the root answers soon, or
else what the tables themselves say."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metastore_assets.assets.changes import is_partitioned
from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import open_table_format
from metastore_assets.resources.configuration import Configuration
from metastore_assets.store.manifest import Version
from metastore_assets.store.versions import versions_of

_TIMEOUT = 5.0
"""Seconds for a root that does not answer: Dagster loads a code location at every start, of runs too."""
_READERS = 8


@dataclass(frozen=True)
class TableInfo:
    """What is known of one table; nothing, as it is made."""

    version: Version | None = None
    """The newest."""
    partitioned: bool | None = None
    """Whether it has partition columns: by that version, else as it is now."""

    @property
    def format(self) -> str | None:
        """As the version has it."""
        return self.version.format if self.version else None


def read_table_info(
    configuration: Configuration, tables: Sequence[str], timeout: float = _TIMEOUT
) -> Mapping[str, TableInfo]:
    """By table, what is known of it. What cannot be read in time is left out: a code location has to load whatever its
    root, the tables and the environment say; runs and sensors tell what is wrong.

    A table without a version is asked whether it has partitions, because what hangs below what is part of what Dagster
    remembers of a result: were it guessed, and mended after the first version, that would look outdated.
    """
    infos: dict[str, TableInfo] = {}
    names = iter(tables)
    try:
        metastore = configuration.now()
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
        for name in pending_names():
            try:
                version = versions_of(metastore, name).latest()
                if version is None:
                    infos[name] = TableInfo(None, _has_partitions(metastore.table(name)))
                else:
                    infos[name] = TableInfo(version, is_partitioned(version))
            except Exception:  # noqa: BLE001 (whatever it is, a run will say it)
                continue

    # Not an executor: its threads would be waited for when the process ends.
    readers = [threading.Thread(target=read, daemon=True) for _ in range(min(_READERS, len(tables)))]
    end = time.monotonic() + timeout
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(max(0.0, end - time.monotonic()))
    return dict(infos)


def _has_partitions(table: TableConfig) -> bool:
    return bool(open_table_format(table).partition_columns())
