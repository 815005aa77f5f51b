"""Compaction of value counts: merged files for each stage, and plain files for other tools.

Value counts are the distinct values of a column with their frequencies. They are stored in stages, each of which has
the same counts in another order or grouping. A stage has sorted files, which are merged. A version is the published
statistics of a table at one snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from metastore_assets.config import TableConfig
from metastore_assets.errors import VersionConflictError, VersionNotFoundError
from metastore_assets.pipeline.value_counts.plain import plain_file_columns, write_frequencies, write_ranks
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import ValueCountFiles, Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import TableValueCounts, read_value_counts, write_value_counts
from metastore_assets.value_counts.fingerprinted import fingerprint_dataflow
from metastore_assets.values.columns import schema_columns


@dataclass(frozen=True)
class Compacted:
    """The outcome of `compact`."""

    version: int
    """Number of the newest version, which may be the published one."""
    published: bool
    """Whether a version was published. False if all files were up to date already."""
    files_before: int
    """Number of value count files before compaction."""
    files: int
    """Number of value count files after compaction."""
    frequencies: str | None
    """Path, relative to the table's folder, of the plain file by decreasing frequency; None without value counts."""
    ranks: str | None
    """Path, relative to the table's folder, of the plain file with ranks; None if no column has `ranks: on`."""


def compact(versions: VersionStore, table: TableConfig) -> Compacted:
    """Publish the newest version again, with compacted value counts and up-to-date plain files.

    Nothing is published if both are up to date.

    Args:
        versions: The versions of the table.
        table: The configuration of the table. Its policies determine which columns have ranks.

    Raises:
        VersionNotFoundError: The table has no version.
        VersionConflictError: Other processes published versions in each attempt.
    """

    def publish_compacted(latest: Version | None) -> Compacted:
        if latest is None:
            raise VersionNotFoundError(
                f"table {versions.table!r} has no published version; run `metastore refresh {versions.table}`"
            )
        before = read_value_counts(versions.objects, latest.value_counts)
        after = _compact_files(versions.objects, before)
        files = _write_plain_files(versions.objects, latest, after, table, is_same=after.is_same(before))
        file_counts = (len(before.paths()), len(after.paths()))
        plain_paths = (None, None) if files is None else (files.frequencies or None, files.ranks or None)
        if files == latest.value_counts:
            return Compacted(latest.number, False, *file_counts, *plain_paths)
        new = replace(
            latest,
            value_counts=files,
            number=latest.number + 1,
            published_at=datetime.now(UTC),
            garbage_manifest=None,
            refresh_stats=None,
        )
        try:
            versions.publish(new, latest)
        except VersionConflictError:
            versions.discard(new, latest)
            raise
        return Compacted(new.number, True, *file_counts, *plain_paths)

    return versions.with_newest(publish_compacted)


def _compact_files(store: ObjectStore, value_counts: TableValueCounts) -> TableValueCounts:
    """Merge the files of each stage, so that each key range has at most one file.

    Return the value counts with the merged files. A stage that is already merged keeps its files.
    """
    fingerprinted_counts, flow, fingerprints = (
        value_counts.fingerprinted,
        value_counts.flow,
        value_counts.fingerprinted.flow,
    )
    if value_counts.columns:
        flow = value_counts.dataflow(store).compact_state(flow, full=True)
    if fingerprinted_counts.columns:
        fingerprints = fingerprint_dataflow(store, set(fingerprinted_counts.columns.values())).compact_state(
            fingerprints, full=True
        )
    return replace(value_counts, flow=flow, fingerprinted=replace(fingerprinted_counts, flow=fingerprints))


def _write_plain_files(
    store: ObjectStore, latest: Version, value_counts: TableValueCounts, table: TableConfig, *, is_same: bool
) -> ValueCountFiles | None:
    """Write plain files that are missing or outdated, and the JSON file that names all files.

    Returns the paths of these files. Files that are up to date keep their paths. Returns None if the table has no value
    counts.

    Args:
        store: The folder of the table.
        latest: The newest version.
        value_counts: The compacted value counts.
        table: The configuration of the table. Its policies determine which columns have ranks.
        is_same: Whether compaction changed nothing. If so, the JSON file is not written again.
    """
    columns = schema_columns(latest.schema)
    counted_columns = [
        column
        for column in columns
        if column.field_id in value_counts.columns or column.field_id in value_counts.fingerprinted.columns
    ]
    ranked_columns = [
        column
        for column in columns
        if column.field_id in value_counts.columns and table.effective_policy(column.path).ranks == "on"
    ]
    files = latest.value_counts if is_same else write_value_counts(store, value_counts)
    if files is None:
        return None
    if plain_file_columns(store, files.frequencies) != {column.field_id for column in counted_columns}:
        files = replace(files, frequencies=write_frequencies(store, value_counts, counted_columns))
    if plain_file_columns(store, files.ranks) != {column.field_id for column in ranked_columns}:
        files = replace(files, ranks=write_ranks(store, value_counts, ranked_columns) if ranked_columns else "")
    return files
