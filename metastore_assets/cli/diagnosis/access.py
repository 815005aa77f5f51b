"""Checks of `metastore doctor`: whether the root and the tables can be accessed.

The root is the folder with all stored state. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING

from metastore_assets.cli.diagnosis.finding import DoctorFinding, check
from metastore_assets.errors import MetastoreError, ObjectExistsError, VersionNotFoundError
from metastore_assets.messages import redact
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.config import MetastoreConfig, TableConfig
    from metastore_assets.formats import FragmentSource

_PROBE = b"written by metastore doctor"


def check_root(config: MetastoreConfig) -> DoctorFinding:
    """Check access to the root: write, read, list, conditionally write and delete a small object."""
    advice = "check that the root exists, that `storage_options` and credentials are right, and that they allow to "
    advice += "read, write, list and delete"

    def probe() -> str:
        """Write a small object, read, list, overwrite conditionally and delete it.

        Raises an error at the first operation that fails. The conditional write must be refused by the store.
        """
        from metastore_assets.store.objects import ObjectStore

        store = ObjectStore(config.root, config.storage_options)
        is_new = not store.is_remote and not os.path.exists(store.uri())
        folder = f"_doctor-{uuid.uuid4().hex}"
        path = f"{folder}/probe"
        try:
            store.write(path, _PROBE, create=True)
            if store.read(path) != _PROBE:
                raise MetastoreError("the root returns other bytes than were written")
            if [info.path for info in store.scan(folder)] != [path]:
                raise MetastoreError("the root does not list an object that was written")
            try:
                store.write(path, b"", create=True)
            except ObjectExistsError:
                pass
            else:
                raise MetastoreError(
                    "the root ignores conditional writes, so two refreshes could overwrite each other's version: use a "
                    "store that supports If-None-Match"
                )
            store.delete_folder(folder)
            if any(store.scan(folder)):
                raise MetastoreError(f"the root still lists an object that was deleted: {path}")
        finally:
            with contextlib.suppress(Exception):
                store.delete_folder(folder)
            if is_new:
                with contextlib.suppress(OSError):
                    os.rmdir(store.uri())
        return f"{redact(config.root)}: write, read, list, conditional write and delete work"

    return check("root", probe, advice)


def check_table(config: MetastoreConfig, table: TableConfig, *, deep: bool) -> DoctorFinding:
    """Check access to a table: read its current snapshot, and compare it with the newest version.

    Args:
        config: The configuration.
        table: The table.
        deep: Whether to list the table's files too, and to read the smallest one.
    """
    subject = f"table {table.name}"
    if table.dropped_reason is not None:
        return DoctorFinding(subject, "warning", f"dropped from its catalog: {table.dropped_reason}")
    advice = f"check `uri`, `storage_options` and credentials of {table.name}"
    return check(subject, lambda: _describe_table(config, table, deep), advice)


def _describe_table(config: MetastoreConfig, table: TableConfig, deep: bool) -> str:
    """Return a line on the table: its format, its snapshot, and whether its newest version is current.

    Args:
        config: The configuration, for the versions in the root.
        table: The configuration of the table.
        deep: Whether to list the table's files and read the smallest one. The line then has their number.
    """
    from metastore_assets.formats import open_table_format
    from metastore_assets.metastore import Metastore
    from metastore_assets.pipeline.version_policies import has_configured_policies
    from metastore_assets.tasks.isolation import IsolatedRunner

    table_format = open_table_format(table)
    facts = []
    format_name = table.declared_format
    if deep:
        snapshot = table_format.snapshot()
        current, format_name = snapshot.reference, snapshot.format
        facts.append(text.format_count(len(snapshot.fragments), "file"))
        if snapshot.fragments:
            smallest_fragment = min(snapshot.fragments, key=lambda fragment: fragment.bytes)
            IsolatedRunner().map(_count_rows, [smallest_fragment.source])
            facts.append("one of them read")
    else:
        current = table_format.current()
    try:
        version = Metastore(config.root, storage_options=config.storage_options).table(table.name).version
    except VersionNotFoundError:
        state = f"never refreshed: run `metastore refresh {table.name}`"
    else:
        format_name = format_name or version.format
        is_same_snapshot = (version.snapshot, version.committed_at) == (current.id, current.committed_at)
        is_current = is_same_snapshot and has_configured_policies(config, table, version)
        freshness = "current" if is_current else f"outdated: run `metastore refresh {table.name}`"
        state = f"version {version.number} is {freshness}"
    facts.append(f"snapshot {text.make_printable(current.id[:20])}; {state}")
    return ", ".join([*([] if format_name is None else [format_name]), *facts])


def _count_rows(source: FragmentSource) -> int:
    """Open a data file, and return its number of rows.

    This runs in a child process.
    """
    with source.open() as reader:
        return reader.row_count
