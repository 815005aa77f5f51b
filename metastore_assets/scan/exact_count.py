"""Exact numbers of matching rows, from a version's statistics or, if necessary, from data files.

A version has the statistics of one snapshot of the table. Value counts are the distinct values of a column with their
frequencies.
"""

from __future__ import annotations

from functools import partial

import pyarrow.compute as pc

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats.base import SnapshotReference
from metastore_assets.lookup import Table
from metastore_assets.lookup.results import AsOf, Count, ReadCost
from metastore_assets.lookup.table import SnapshotChoice
from metastore_assets.reads.matching_rows import StartSpark, count_rows, create_scan_engine, map_fragments
from metastore_assets.reads.scan_plan import ScanPlan, plan_scan
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.storage.io_counters import count_io, io_step

_MAX_ATTEMPTS = 3
_READ_STEP = "read"


def count(
    lookup: Table,
    table: TableConfig,
    where: str | pc.Expression,
    spark: StartSpark | None = None,
    *,
    snapshot: SnapshotChoice = "now",
) -> Count:
    """Return the exact number of rows that match a predicate.

    A fragment (a data file with its deletes) is read only if statistics do not show how many of its rows match. If a
    commit removes a file while the current snapshot is counted, the newest snapshot is counted instead.

    Args:
        lookup: The version with the statistics.
        table: The location of the table.
        where: The predicate, as SQL text or an Arrow expression.
        spark: Returns a Spark session, which reads the files if they are many or large. If `spark` is None, child
            processes of this process read them.
        snapshot: The snapshot whose rows are counted.

    Raises:
        FragmentError: A file cannot be read.
        MetastoreError: For the reasons of `plan_scan`.
    """
    engine = create_scan_engine(spark)
    for attempt in range(_MAX_ATTEMPTS):
        with count_io() as meter:
            plan = plan_scan(lookup, table, where, snapshot, SizedRunner(engine.start))
            row_count = _count_from_version(lookup, where, plan)
            if row_count is not None:
                return _exact_count(lookup, plan, row_count)
            fragments = plan.uncounted_fragments
            try:
                with io_step(_READ_STEP):
                    counts = map_fragments(engine, partial(count_rows, plan.filter), fragments)
            except FragmentError as error:
                if not error.missing or snapshot == "version" or attempt == _MAX_ATTEMPTS - 1:
                    raise
                continue  # a commit may have removed the file meanwhile
        bytes_read = meter.counts(_READ_STEP).read.bytes
        return _exact_count(lookup, plan, plan.counted_rows + sum(counts), len(fragments), bytes_read)
    raise AssertionError


def _exact_count(lookup: Table, plan: ScanPlan, row_count: int, fragments_read: int = 0, bytes_read: int = 0) -> Count:
    version, snapshot = lookup.version.number, plan.snapshot
    cost = ReadCost(fragments_read, bytes_read, len(snapshot.fragments))
    return Count(row_count, "exact", AsOf(version, snapshot.id), cost)


def _count_from_version(lookup: Table, where: str | pc.Expression, plan: ScanPlan) -> int | None:
    """Return the number of matching rows from the version's value counts, without reading data files.

    The result is None in three cases: value counts are not sufficient, the version and the plan differ in snapshot or
    schema, or the plan already knows the number of matching rows of every fragment.
    """
    version, snapshot = lookup.version, plan.snapshot
    if not plan.uncounted_fragments:
        return None  # the plan decides it without reading value counts
    if SnapshotReference(version.snapshot, version.committed_at) != snapshot.reference:
        return None
    if version.schema != snapshot.schema:
        return None
    estimate = lookup.estimate(where)
    return estimate.value if estimate.guarantee == "exact" else None
