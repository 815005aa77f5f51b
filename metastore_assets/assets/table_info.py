"""The facts of each table that Dagster needs to load a code location: its format and partitioning.

The partitioning is whether the table has partition columns. One file in the root (the folder with all stored state) has
these facts for all tables. Definitions read this file, so they do not wait for tables or catalogs. Sensors and runs
keep it up to date. A version is the published statistics of a table at one snapshot.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from metastore_assets.assets.pending_events import is_partitioned
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError, ObjectNotFoundError, StoreError
from metastore_assets.formats import open_table_format
from metastore_assets.resources.configuration import LOAD_TIMEOUT, Configuration
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version
from metastore_assets.store.versions import versions_of

_FILE = "_dagster/tables.json"
"""The file in the root. Its folder is not that of a table, because no table name begins with `_`."""
_FORMAT = 1
_READERS = 8
_WRITES = 3
"""Maximum number of times that the file is written, because another process may replace it after each write."""


@dataclass(frozen=True)
class TableInfo:
    """Format and partitioning of one table.

    None means unknown.
    """

    format: str | None = None
    """The table's format in the newest version; None before the first version."""
    partitioned: bool | None = None
    """Whether the table has partition columns in the newest version, or now if it has no version. None if unknown."""

    @classmethod
    def of(cls, version: Version) -> "TableInfo":
        """Return format and partitioning of the table as of a version."""
        return cls(version.format, is_partitioned(version))

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> "TableInfo":
        """Return the facts in a mapping that `dataclasses.asdict` created.

        A value of a wrong type becomes None.
        """
        format_, is_partitioned = fields.get("format"), fields.get("partitioned")
        return cls(
            format_ if isinstance(format_, str) else None, is_partitioned if isinstance(is_partitioned, bool) else None
        )


def load_table_info(
    configuration: Configuration, tables: Sequence[str], timeout: float = LOAD_TIMEOUT
) -> Mapping[str, TableInfo]:
    """Return the facts about tables (format and partitioning), by table name.

    Facts that had to be looked up are stored in the root.

    Facts are taken from the root. Those that the root lacks are taken from the state of the Dagster component. Those
    that both lack are looked up: read from the newest version, or from the table. This last step is left out
    if the root cannot be read. A table whose facts remain unknown is missing in the result. Nothing is raised: a code
    location must load even if a root, a table or a variable is unavailable.

    Args:
        configuration: The configuration that has the tables.
        tables: The names of the tables.
        timeout: Seconds to wait in total: for the root, and for all tables that are looked up.
    """
    infos = {name: TableInfo.from_json(fields) for name, fields in configuration.state.tables.items()}
    try:
        config = configuration.resolved()
    except MetastoreError:
        return infos
    end = time.monotonic() + timeout

    def read_stored() -> None:
        try:
            stored_infos.append(_read_file(_root(config)))
        except StoreError:
            return  # A root that cannot be read has no versions to look up either.

    stored_infos: list[Mapping[str, TableInfo]] = []
    _wait([threading.Thread(target=read_stored, daemon=True)], end)
    for infos_of_root in stored_infos:
        infos.update(infos_of_root)
        unknown = [name for name in tables if name not in infos]
        # Facts that became known only after the first run would change dependencies, and Dagster would mark its results
        # as outdated.
        looked_up = look_up_tables(config, unknown, max(0.0, end - time.monotonic()))
        if looked_up:
            infos.update(looked_up)
            store_table_info(config, looked_up)
    return infos


def look_up_tables(config: MetastoreConfig, tables: Sequence[str], timeout: float) -> Mapping[str, TableInfo]:
    """Return format and partitioning of each table, from its newest version.

    Without a version, the table itself is read for its partitioning, and the format is None. Tables that cannot be read
    in time, or at all, are left out of the result.

    Args:
        config: A configuration in which references such as `${VAR}` are replaced by the values of variables.
        tables: The names of the tables.
        timeout: Seconds to wait for all tables together.
    """
    infos: dict[str, TableInfo] = {}
    names = iter(tables)
    lock = threading.Lock()

    def pending_names() -> Iterator[str]:
        """Yield the names that no thread has taken yet."""
        while True:
            with lock:
                name = next(names, None)
            if name is None:
                return
            yield name

    def read() -> None:
        """Read tables that no other thread has taken, until none is left.

        Skip tables that cannot be read.
        """
        for name in pending_names():
            try:
                version = versions_of(config, name).latest()
                if version is None:
                    infos[name] = TableInfo(None, _has_partitions(config.table(name)))
                else:
                    infos[name] = TableInfo.of(version)
            except Exception:  # noqa: BLE001 (a run will report the error)
                continue

    # Daemon threads instead of an executor, for whose threads Python would wait at exit.
    _wait(
        [threading.Thread(target=read, daemon=True) for _ in range(min(_READERS, len(tables)))],
        time.monotonic() + timeout,
    )
    return dict(infos)


def store_table_info(config: MetastoreConfig, infos: Mapping[str, TableInfo]) -> None:
    """Store facts about tables for the next load of definitions.

    Does nothing if the root cannot be written.

    If two processes write the file at the same moment, the facts of one process may be lost. They are
    stored again by the next run of the table, or by the next load of definitions, whichever is first.
    """
    root = _root(config)
    try:
        for _ in range(_WRITES):
            stored_infos = _read_file(root)
            merged_infos = {**stored_infos, **infos}
            if merged_infos == stored_infos:
                return
            tables = {name: asdict(info) for name, info in sorted(merged_infos.items())}
            root.write(_FILE, json.dumps({"format": _FORMAT, "tables": tables}, ensure_ascii=False).encode())
    except StoreError:
        return  # A process without write access to the root depends on others.


def _read_file(root: ObjectStore) -> Mapping[str, TableInfo]:
    """Return the stored facts; empty without a valid file.

    Raises StoreError if the root cannot be read.
    """
    try:
        document = parse_json(root.read(_FILE))
        if document["format"] == _FORMAT:
            return {str(name): TableInfo.from_json(fields) for name, fields in document["tables"].items()}
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return {}


def _wait(threads: Iterable[threading.Thread], end: float) -> None:
    """Start the threads, and wait until all have ended or `time.monotonic()` reaches `end`."""
    started_threads = list(threads)
    for thread in started_threads:
        thread.start()
    for thread in started_threads:
        thread.join(max(0.0, end - time.monotonic()))


def _root(config: MetastoreConfig) -> ObjectStore:
    return ObjectStore(config.root, config.storage_options)


def _has_partitions(table: TableConfig) -> bool:
    return bool(open_table_format(table).partition_columns())
