"""Check in the background whether a version describes the current state of its table."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from metastore_assets.cli.opening import find_table_config
from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import MetastoreError, SnapshotNotFoundError, TableNotFoundError
from metastore_assets.report.text import one_line

if TYPE_CHECKING:
    from metastore_assets.formats.base import SnapshotReference
    from metastore_assets.store.manifest import Version

PATIENCE = 10.0
"""Seconds to wait for a table that does not respond."""


class CurrentCheck:
    """Requests a table's current snapshot in the background as soon as it is created."""

    def __init__(self, config: MetastoreConfig, table: str) -> None:
        self._config = config
        self._name = table
        self._snapshot: SnapshotReference | None = None
        self._gone = ""
        self._failure = f"it did not answer within {PATIENCE:.0f} seconds"
        # A daemon thread, so that a silent store does not keep the command from ending.
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def is_current(self, version: Version) -> tuple[bool | None, str | None]:
        """Return whether the table is at the version's snapshot, or None and a one-line reason."""
        # Wait in short intervals, because a long wait might not notice a signal; see `install_signal_handlers`.
        end = time.monotonic() + PATIENCE
        while self._thread.is_alive() and time.monotonic() < end:
            self._thread.join(0.2)
        if self._gone:
            return None, f"the table is not there any more, and version {version.number} stays as it is: {self._gone}"
        if self._snapshot is None:
            return None, f"whether version and table agree is not known: {self._failure}"
        return (self._snapshot.id, self._snapshot.committed_at) == (version.snapshot, version.committed_at), None

    def _ask(self) -> None:
        from metastore_assets.formats import MetadataCache, open_table_format
        from metastore_assets.store.versions import versions_of

        cache = MetadataCache(versions_of(self._config, self._name).metadata_cache)
        try:
            self._snapshot = open_table_format(find_table_config(self._config, self._name), cache).current()
        except SnapshotNotFoundError as error:
            self._failure = one_line(str(error))
        except TableNotFoundError as error:
            self._gone = one_line(str(error))
        except MetastoreError as error:
            self._failure = one_line(str(error))
        except Exception as error:  # noqa: BLE001 (the clients of object stores raise whatever they like)
            self._failure = one_line(f"{type(error).__name__}: {error}")
