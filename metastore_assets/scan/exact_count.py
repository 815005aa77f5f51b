"""How many rows a predicate is true of, exactly: from the version where it says that, else from the table's files."""

from __future__ import annotations

from functools import partial

import pyarrow.compute as pc

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats.base import SnapshotReference
from metastore_assets.lookup import Table
from metastore_assets.lookup.results import ExactCount
from metastore_assets.scan.matching_rows import StartSpark, count_rows, map_fragments, scan_engine
from metastore_assets.scan.scan_plan import ScanPlan, Which, plan_scan
from metastore_assets.spark.runner import SizedRunner
from metastore_assets.storage.io_counters import count_io, io_step

_ATTEMPTS = 3
_READ = "read"


def count(
    lookup: Table,
    table: TableConfig,
    where: str | pc.Expression,
    spark: StartSpark | None = None,
    *,
    snapshot: Which = "now",
) -> ExactCount:
    """How many rows of a table a predicate is true of: of its snapshot now, or of the version's.

    Fragments that the predicate is true of no row in, or of all, are not read, nor are others whose statistics say how
    many; the rest are, by Spark where they are many or large, and by child processes without. Raises as `plan_scan`;
    FragmentError when a file cannot be read.
    """
    engine = scan_engine(spark)
    for attempt in range(_ATTEMPTS):
        with count_io() as meter:
            chosen = plan_scan(lookup, table, where, snapshot, SizedRunner(engine.start))
            known = _told(lookup, where, chosen)
            if known is not None:
                return ExactCount(
                    known, 0, 0, len(chosen.snapshot.fragments), lookup.version.number, chosen.snapshot.id
                )
            read = [fragment for fragment in chosen.undecided if fragment.id not in chosen.unread]
            try:
                with io_step(_READ):
                    counts = map_fragments(engine, partial(count_rows, chosen.filter), read)
            except FragmentError as error:
                if not error.missing or snapshot == "version" or attempt == _ATTEMPTS - 1:
                    raise
                continue  # the table may have moved on while it was read
        return ExactCount(
            chosen.decided_rows + sum(counts),
            len(read),
            meter.counts(_READ).read.bytes,
            len(chosen.snapshot.fragments),
            lookup.version.number,
            chosen.snapshot.id,
        )
    raise AssertionError


def _told(lookup: Table, where: str | pc.Expression, chosen: ScanPlan) -> int | None:
    """What the version's lists say by themselves, of its own snapshot; None where they leave it open."""
    version, snapshot = lookup.version, chosen.snapshot
    if len(chosen.undecided) == len(chosen.unread):
        return None  # nothing has to be read anyway
    if SnapshotReference(version.snapshot, version.committed_at) != snapshot.reference:
        return None
    if version.schema != snapshot.schema:
        return None
    found = lookup.estimate(where)
    return found.estimate if found.guarantee == "exact" else None
