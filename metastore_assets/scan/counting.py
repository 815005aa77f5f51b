"""How many rows a predicate is true of, exactly: from the version where it says that, else from the table's files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from metastore_assets.config import TableConfig
from metastore_assets.errors import FatalFileError, FragmentError, MetastoreError, WorkerEndedError
from metastore_assets.formats.apart.reading import read_all
from metastore_assets.formats.base import Fragment, SnapshotReference
from metastore_assets.lookup import TableLookup
from metastore_assets.lookup.answers import Counted
from metastore_assets.lookup.predicates.rows import RowFilter
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.reading import TaskReader
from metastore_assets.scan.choosing import Choice, Which, choose
from metastore_assets.scan.reading import count_rows
from metastore_assets.spark.tasks import run_tasks
from metastore_assets.traffic import metered, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = 3
_READ = "read"


def count(
    lookup: TableLookup,
    table: TableConfig,
    where: str | pc.Expression,
    spark: Callable[[], SparkSession] | None = None,
    *,
    snapshot: Which = "now",
) -> Counted:
    """How many rows of a table a predicate is true of: of its snapshot now, or of the version's.

    Fragments that the predicate is true of no row in, or of all, are not read, nor are others whose statistics say how
    many; the rest are, by Spark where they are many or large, and by child processes without. Raises as `choose`;
    FragmentError when a file cannot be read.
    """
    engine = Engine(spark or _no_spark, "auto")
    for attempt in range(_ATTEMPTS):
        with metered() as meter:
            chosen = choose(lookup, table, where, snapshot, TaskReader(engine_session(engine)))
            known = _told(lookup, where, chosen)
            if known is not None:
                return Counted(known, 0, 0, len(chosen.snapshot.fragments), lookup.version.number, chosen.snapshot.id)
            read = [fragment for fragment in chosen.undecided if fragment.id not in chosen.unread]
            try:
                with step(_READ):
                    counts = _counted(engine, chosen.filter, read, apart=spark is None)
            except FragmentError as error:
                if not error.missing or snapshot == "version" or attempt == _ATTEMPTS - 1:
                    raise
                continue  # the table may have moved on while it was read
        return Counted(
            chosen.decided_rows + sum(counts),
            len(read),
            meter.told(_READ).read.bytes,
            len(chosen.snapshot.fragments),
            lookup.version.number,
            chosen.snapshot.id,
        )
    raise AssertionError


def _told(lookup: TableLookup, where: str | pc.Expression, chosen: Choice) -> int | None:
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


def engine_session(engine: Engine) -> Callable[[], SparkSession]:
    """Asks an engine for its session."""
    return lambda: engine.session


def _counted(engine: Engine, own: RowFilter, fragments: Sequence[Fragment], *, apart: bool) -> list[int]:
    if not fragments:
        return []
    if apart or engine.reads_here([fragment.bytes for fragment in fragments]):
        return _counted_apart(own, fragments)
    weights = [float(fragment.bytes + 1) for fragment in fragments]
    try:
        return run_tasks(engine.session, partial(count_rows, own), fragments, weights)
    except WorkerEndedError:
        # Which file ended its worker is known when each is read in a child of one.
        lots = [(fragment,) for fragment in fragments]
        return [
            found for own_ in run_tasks(engine.session, partial(_counted_apart, own), lots, weights) for found in own_
        ]


def _counted_apart(own: RowFilter, fragments: Sequence[Fragment]) -> list[int]:
    tasks = [(own, fragment) for fragment in fragments]
    outcomes = read_all(count_rows, tasks, [fragment.path for fragment in fragments])
    for outcome in outcomes:
        if isinstance(outcome, FatalFileError):
            raise FragmentError(str(outcome), path=outcome.path)
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


def _no_spark() -> SparkSession:
    raise MetastoreError("there is more to read than this process does by itself: give a Spark session")
