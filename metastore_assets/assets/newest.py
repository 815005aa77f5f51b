"""What is known of the tables when a code location is loaded: their newest versions, where the root answers soon."""

import threading
import time
from collections.abc import Iterator, Mapping

from metastore_assets.config import MetastoreConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore

_PATIENCE = 5.0
"""Seconds for a root that does not answer: Dagster loads a code location at every start, of runs too."""
_READERS = 8


def newest_versions(metastore: MetastoreConfig, patience: float = _PATIENCE) -> Mapping[str, Version]:
    """By table, the newest version. Tables without one are left out, and those whose version cannot be read in time:
    a code location has to load whatever its root says; runs and sensors tell what is wrong with it."""
    found: dict[str, Version] = {}
    names = iter([table.name for table in metastore.tables])
    lock = threading.Lock()

    def taken() -> Iterator[str]:
        while True:
            with lock:
                name = next(names, None)
            if name is None:
                return
            yield name

    def read() -> None:
        for name in taken():
            try:
                version = VersionStore(ObjectStore(metastore.root, metastore.storage_options), name).latest()
            except MetastoreError:
                continue
            if version is not None:
                found[name] = version

    # Not an executor: its threads would be waited for when the process ends.
    readers = [threading.Thread(target=read, daemon=True) for _ in range(min(_READERS, len(metastore.tables)))]
    end = time.monotonic() + patience
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(max(0.0, end - time.monotonic()))
    return dict(found)
