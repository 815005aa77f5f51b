"""What is known of the tables when a code location is loaded: their newest versions, where the root answers soon."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from metastore_assets.errors import MetastoreError
from metastore_assets.resources.configuration import Configuration, versions_of
from metastore_assets.store.manifest import Version

_PATIENCE = 5.0
"""Seconds for a root that does not answer: Dagster loads a code location at every start, of runs too."""
_READERS = 8


def newest_versions(
    configuration: Configuration, tables: Sequence[str], patience: float = _PATIENCE
) -> Mapping[str, Version]:
    """By table, the newest version. Tables without one are left out, and those whose version cannot be read in time:
    a code location has to load whatever its root and the environment say; runs and sensors tell what is wrong."""
    found: dict[str, Version] = {}
    names = iter(tables)
    try:
        metastore = configuration.now()
    except MetastoreError:
        return found
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
                version = versions_of(metastore, name).latest()
            except MetastoreError:
                continue
            if version is not None:
                found[name] = version

    # Not an executor: its threads would be waited for when the process ends.
    readers = [threading.Thread(target=read, daemon=True) for _ in range(min(_READERS, len(tables)))]
    end = time.monotonic() + patience
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(max(0.0, end - time.monotonic()))
    return dict(found)
