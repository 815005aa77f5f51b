"""A background check whether a version is up to date.

A version is the published statistics of a table at one snapshot. A version is up to date if it describes the table's
current snapshot, and if its statistics were computed under the configured policies (what to store of each
column).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from metastore_assets.cli.opening import find_table_config
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError, SnapshotNotFoundError, TableNotFoundError
from metastore_assets.report.text import to_one_line

if TYPE_CHECKING:
    from metastore_assets.formats.base import SnapshotReference
    from metastore_assets.store.version import Version

_TIMEOUT = 10.0
"""Seconds to wait for a table that does not respond."""


class CurrentCheck:
    """A request for a table's current snapshot.

    A background thread sends it when this Python object is created.
    """

    def __init__(self, config: MetastoreConfig, table: str) -> None:
        self._config = config
        self._name = table
        self._table: TableConfig | None = None
        self._snapshot: SnapshotReference | None = None
        self._absence = ""
        self._failure = f"the table did not answer within {_TIMEOUT:.0f} seconds"
        # A daemon thread does not keep the command from ending when a store never answers.
        self._thread = threading.Thread(target=self._request, daemon=True)
        self._thread.start()

    def is_current(self, version: Version) -> tuple[bool | None, str | None]:
        """Wait for the answer, and return whether the version is up to date (see the module).

        Returns:
            (whether the version is up to date, note):

            - (True, None): it is up to date.
            - (False, None): the table has another snapshot now.
            - (False, text): the snapshot is the same, but the policies or the release of this package have changed.
            - (None, text): the table no longer exists, or it is unknown whether the version is up to date.

            The text is one line, which tells the reason to users.
        """
        # Wait in short intervals, because a long wait might not notice a signal; see `install_signal_handlers`.
        end = time.monotonic() + _TIMEOUT
        while self._thread.is_alive() and time.monotonic() < end:
            self._thread.join(0.2)
        if self._absence:
            return None, f"the table no longer exists; version {version.number} is still available: {self._absence}"
        if self._snapshot is None:
            return None, f"cannot tell whether version {version.number} is current: {self._failure}"
        if (self._snapshot.id, self._snapshot.committed_at) != (version.snapshot, version.committed_at):
            return False, None
        return self._matches_policies(version)

    def _matches_policies(self, version: Version) -> tuple[bool | None, str | None]:
        """Return whether a version was made under the configured policies, with a note as in `is_current`.

        If the policies cannot be compared because the key for hidden values is missing, the result is (True, None).
        """
        from metastore_assets import __version__

        assert self._table is not None, "the snapshot is known"
        policies_id = self._table.policies_id
        if policies_id is not None and policies_id == version.policies_id and version.code_version == __version__:
            return True, None  # Without the imports that the complete comparison needs.
        from metastore_assets.pipeline.version_policies import has_configured_policies

        try:
            if has_configured_policies(self._config, self._table, version):
                return True, None
        except MetastoreError as error:
            return None, f"cannot tell whether version {version.number} is current: {to_one_line(str(error))}"
        partitions = self._table.partitions
        has_date = isinstance(partitions, str) and "current_date" in partitions.lower()
        date_note = "the date in its condition on partitions, " if has_date else ""
        return False, (
            f"the configuration of the table, {date_note}or the release of this package, has changed since version "
            f"{version.number}: run `metastore refresh {self._name}` to apply it"
        )

    def _request(self) -> None:
        """Ask the table's format for the current snapshot.

        Store the snapshot, or the reason why there is none.
        """
        from metastore_assets.formats import MetadataCache, open_table_format
        from metastore_assets.store.versions import versions_of

        cache = MetadataCache(versions_of(self._config, self._name).metadata_cache)
        try:
            self._table = find_table_config(self._config, self._name)
            self._snapshot = open_table_format(self._table, cache).current()
        except SnapshotNotFoundError as error:
            self._failure = to_one_line(str(error))
        except TableNotFoundError as error:
            self._absence = to_one_line(str(error))
        except MetastoreError as error:
            self._failure = to_one_line(str(error))
        except Exception as error:  # noqa: BLE001 (the clients of object stores raise errors of many classes)
            self._failure = to_one_line(f"{type(error).__name__}: {error}")
