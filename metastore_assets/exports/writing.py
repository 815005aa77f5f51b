"""Functions that write, inspect and remove the exports of a table.

A target is a place to which statistics are exported, such as a Hive metastore. A version is the published statistics of
a table at one snapshot. The Metastore is the store of these versions. If a target fails, its result has the state
`failed`. The version and the other targets are not affected.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from metastore_assets.config import TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.exports.base import ExportMark, exported_version
from metastore_assets.exports.catalog_table import TableChangedError
from metastore_assets.exports.configured_targets import ExportEntry, select_export_entries
from metastore_assets.exports.export_result import ExportResult, ExportState
from metastore_assets.lookup.table import Scanner, Table
from metastore_assets.messages import join_names, redact_to_line
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Version

_ATTEMPTS = 4
_WAIT_SECONDS = 0.5
"""After attempt n, a process waits for a random time of at most this number times 2**n. So two processes that export
one table at the same time rarely collide again."""


def write_exports(
    table: TableConfig,
    objects: ObjectStore,
    find_version: Callable[[], Version],
    names: Sequence[str] = (),
    *,
    rewrite: bool = False,
) -> tuple[ExportResult, ...]:
    """Write a version to the export targets of a table.

    Targets that have it already are skipped.

    If another process changes a target during the write, the write is repeated after a random time, up to 4 attempts in
    all.

    Args:
        table: The resolved configuration of the table.
        objects: The table's folder below the root of the Metastore.
        find_version: Returns the version to write. Called for each attempt, because a newer version may be published
            meanwhile.
        names: Names of targets under the key `exports`. Default: all.
        rewrite: Whether to write also the targets that have the version already. Everything that this package wrote to
            the targets is removed first.

    Returns:
        One result per target, in the order of the key `exports`.

    Raises:
        ConfigError: The key `exports` is invalid, or a name is unknown. Failures of targets are in the results.
    """
    lookups: dict[int, Table] = {}

    def open_lookup() -> Table:
        version = find_version()
        return lookups.setdefault(version.number, open_version(objects, version))

    entries = select_export_entries(table, names)
    return _each(entries, lambda entry: _write(entry, table, open_lookup, rewrite=rewrite))


def read_export_states(
    table: TableConfig, objects: ObjectStore, version: Version, names: Sequence[str] = ()
) -> tuple[ExportResult, ...]:
    """Return the state of each target: `current`, `behind`, `absent` or `failed`.

    `ExportState` explains these words. Nothing is written.

    Args:
        table: The resolved configuration of the table.
        objects: The table's folder below the root of the Metastore.
        version: The version with which the targets are compared.
        names: Names of targets under the key `exports`. Default: all.

    Raises:
        ConfigError: The key `exports` is invalid, or a name is unknown.
    """
    lookup = open_version(objects, version)
    return _each(select_export_entries(table, names), lambda entry: _state(entry, table, lookup))


def remove_exports(table: TableConfig, names: Sequence[str] = ()) -> tuple[ExportResult, ...]:
    """Remove everything that this package wrote to the targets of a table.

    The arguments and errors are those of `write_exports`.
    """

    def remove(entry: ExportEntry) -> ExportResult:
        has_removed = entry.open(table).remove()
        return ExportResult(entry.name, entry.target.kind, "removed" if has_removed else "absent")

    return _each(select_export_entries(table, names), remove)


def open_version(objects: ObjectStore, version: Version) -> Table:
    """Return a table that answers from a version and never reads the table's own files."""
    return Table(objects, version, _no_scanner)


def _no_scanner() -> Scanner:
    raise MetastoreError("an export reads no files of the table")


def _write(entry: ExportEntry, table: TableConfig, open_lookup: Callable[[], Table], *, rewrite: bool) -> ExportResult:
    """Write the newest version to one target, unless the target has it already.

    If another process changes the table in the catalog meanwhile, the write is repeated. If this also happens during
    the last of `_ATTEMPTS` attempts, TableChangedError is raised.

    Args:
        entry: The target.
        table: The resolved configuration of the table.
        open_lookup: Returns the table, opened at the newest version. Called for each attempt.
        rewrite: Whether to remove everything that this package wrote to the target first.
    """
    target = entry.open(table)
    if rewrite:
        target.remove()
    for attempt in range(1, _ATTEMPTS + 1):
        version_to_export = exported_version(target, open_lookup())
        if (mark := target.status()) is not None and mark.digest == version_to_export.mark.digest:
            return _result(entry, "current", mark)
        try:
            written_export = target.write(version_to_export)
        except TableChangedError:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(random.uniform(0, _WAIT_SECONDS * 2**attempt))
        else:
            notes = (*written_export.notes, *_unmatched_note(version_to_export.unmatched_patterns()))
            return _result(
                entry, "written", version_to_export.mark, written_export.bytes, written_export.columns, notes
            )
    raise AssertionError("the last attempt returns or raises")


def _unmatched_note(patterns: Sequence[str]) -> list[str]:
    """Return a sentence about `patterns`, the entries of the option `columns` that match no column.

    The result is empty if there are no patterns.
    """
    if not patterns:
        return []
    return [f"no column matches {join_names(patterns)} under `columns`"]


def _state(entry: ExportEntry, table: TableConfig, lookup: Table) -> ExportResult:
    """Return the state of an export: whether the target has the statistics of the version."""
    target = entry.open(table)
    mark = target.status()
    if mark is None:
        return _result(entry, "absent", None)
    is_current = mark.digest == exported_version(target, lookup).mark.digest
    return _result(entry, "current" if is_current else "behind", mark)


def _result(entry: ExportEntry, state: ExportState, mark: ExportMark | None, *export_fields: Any) -> ExportResult:
    version, snapshot = (None, None) if mark is None else (mark.version, mark.snapshot)
    return ExportResult(entry.name, entry.target.kind, state, version, snapshot, *export_fields)


def _each(entries: Iterable[ExportEntry], work: Callable[[ExportEntry], ExportResult]) -> tuple[ExportResult, ...]:
    """Return the result of `work` for each entry.

    An exception becomes a result with the state `failed`.
    """
    results = []
    for entry in entries:
        started_at = time.monotonic()
        try:
            result = work(entry)
        except Exception as error:  # noqa: BLE001 (each target has its own client library with its own errors)
            result = ExportResult(entry.name, entry.target.kind, "failed", error=_error_text(error))
        results.append(replace(result, seconds=time.monotonic() - started_at))
    return tuple(results)


def _error_text(error: Exception) -> str:
    text = str(error) if isinstance(error, MetastoreError) else f"{type(error).__name__}: {error}"
    return redact_to_line(text)
