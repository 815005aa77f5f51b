"""A background check whether a version describes the current snapshot of its table.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from metastore_assets.cli.opening import find_table_config
from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import MetastoreError, SnapshotNotFoundError, TableNotFoundError
from metastore_assets.report.text import to_one_line

if TYPE_CHECKING:
    from metastore_assets.formats.base import SnapshotReference
    from metastore_assets.store.version import Version

_TIMEOUT = 10.0
"""Seconds to wait for a table that does not respond."""


class CurrentCheck:
    """A request for a table's current snapshot. A background thread sends it when this Python object is created."""

    def __init__(self, config: MetastoreConfig, table: str) -> None:
        self._config = config
        self._name = table
        self._snapshot: SnapshotReference | None = None
        self._absence = ""
        self._failure = f"the table did not answer within {_TIMEOUT:.0f} seconds"
        # A daemon thread does not keep the command from ending when a store never answers.
        self._thread = threading.Thread(target=self._request, daemon=True)
        self._thread.start()

    def is_current(self, version: Version) -> tuple[bool | None, str | None]:
        """Wait for the answer, and return whether the version describes the table's current snapshot.

        Returns:
            (True or False, None) or, if it is unknown, (None, the reason as one line).
        """
        # Wait in short intervals, because a long wait might not notice a signal; see `install_signal_handlers`.
        end = time.monotonic() + _TIMEOUT
        while self._thread.is_alive() and time.monotonic() < end:
            self._thread.join(0.2)
        if self._absence:
            return None, f"the table no longer exists; version {version.number} is still available: {self._absence}"
        if self._snapshot is None:
            return None, f"cannot tell whether version {version.number} is current: {self._failure}"
        return (self._snapshot.id, self._snapshot.committed_at) == (version.snapshot, version.committed_at), None

    def _request(self) -> None:
        """Ask the table's format for the current snapshot. Store the snapshot, or the reason why there is none."""
        from metastore_assets.formats import MetadataCache, open_table_format
        from metastore_assets.store.versions import versions_of

        cache = MetadataCache(versions_of(self._config, self._name).metadata_cache)
        try:
            self._snapshot = open_table_format(find_table_config(self._config, self._name), cache).current()
        except SnapshotNotFoundError as error:
            self._failure = to_one_line(str(error))
        except TableNotFoundError as error:
            self._absence = to_one_line(str(error))
        except MetastoreError as error:
            self._failure = to_one_line(str(error))
        except Exception as error:  # noqa: BLE001 (the clients of object stores raise errors of many classes)
            self._failure = to_one_line(f"{type(error).__name__}: {error}")
