"""Profile fragments: one Spark task reads a fragment column by column and writes its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl
import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import FatalFileError, FragmentError, MetastoreError, StoreError, WorkerEndedError
from metastore_assets.formats.apart.reading import read_all
from metastore_assets.formats.base import Fragment
from metastore_assets.formats.damage import DAMAGE, reason
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.files import ProfileWriter
from metastore_assets.pipeline.plan import Layout, field_identity
from metastore_assets.spark.tasks import limit_threads, run_tasks
from metastore_assets.statistics.leaves import schema_leaves
from metastore_assets.statistics.profile import profile_field
from metastore_assets.store.manifest import FragmentEntry
from metastore_assets.store.objects import ObjectStore

_DAMAGE = (*DAMAGE, pl.exceptions.PolarsError, pl.exceptions.PanicException)


@dataclass(frozen=True)
class ProfileContext:
    """What every task of one refresh needs beside its fragment."""

    store: ObjectStore
    """The table's folder below the Metastore's root."""
    table: TableConfig
    schema: pa.Schema
    layout: Layout
    alone: frozenset[str] = frozenset()
    """Ids of fragments that have a partition to themselves: their profiles are also those of the partitions, for people
    to read. All others are packed."""


@dataclass(frozen=True)
class FragmentFailure:
    """Why one fragment has no profile."""

    fragment_id: str
    partition_key: str
    path: str
    message: str
    missing: bool
    """The data file is gone: the table may have moved on."""


class FragmentProfiler:
    """Profiles fragments on Spark, or in a child of this process where that does."""

    def __init__(self, engine: Engine, context: ProfileContext) -> None:
        self._engine = engine
        self._context = context
        self._apart = False
        """Whether a fragment has ended its worker: from then on each is read in a child process of its worker."""

    def profile(self, fragments: Sequence[Fragment]) -> tuple[list[FragmentEntry], list[FragmentFailure]]:
        """Profile fragments at once. A fragment that fails does not keep the others from being profiled.

        When one ends its Spark worker, and so the job, all are read again apart: what they end then is known by name.
        """
        try:
            results = self._results(fragments)
        except WorkerEndedError:
            if self._apart:
                raise
            self._apart = True
            results = self._results(fragments)
        return (
            [result for result in results if isinstance(result, FragmentEntry)],
            [result for result in results if isinstance(result, FragmentFailure)],
        )

    def _results(self, fragments: Sequence[Fragment]) -> list[FragmentEntry | FragmentFailure]:
        if self._engine.reads_here([fragment.bytes for fragment in fragments]):
            return profile_apart(self._context, fragments)
        function = _profile_one_apart if self._apart else profile_fragment
        weights = [float(fragment.bytes + 1) for fragment in fragments]
        return run_tasks(self._engine.session, partial(function, self._context), fragments, weights)


def profile_apart(context: ProfileContext, fragments: Sequence[Fragment]) -> list[FragmentEntry | FragmentFailure]:
    """As `profile_fragment`, but in a child of this process: a fragment that ends it is a failure like others."""
    tasks = [(fragment,) for fragment in fragments]
    results: list[FragmentEntry | FragmentFailure] = []
    for fragment, outcome in zip(
        fragments, read_all(partial(_profile_alone, context), tasks, [own.path for own in fragments]), strict=True
    ):
        if isinstance(outcome, FatalFileError):
            results.append(_failure(fragment, str(outcome), missing=False))
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            results.append(outcome)
    return results


def _profile_one_apart(context: ProfileContext, fragment: Fragment) -> FragmentEntry | FragmentFailure:
    return profile_apart(context, [fragment])[0]


def _profile_alone(context: ProfileContext, fragment: Fragment) -> FragmentEntry | FragmentFailure:
    limit_threads()
    return profile_fragment(context, fragment)


def profile_fragment(context: ProfileContext, fragment: Fragment) -> FragmentEntry | FragmentFailure:
    """Read one fragment, one top-level column at a time, and write its statistics, frequencies and histograms.

    Runs in a worker process. What the fragment does wrong comes back as a failure that names its file; a store that
    cannot be written raises, for it concerns every fragment.
    """
    try:
        return _profile(context, fragment)
    except StoreError:
        raise
    except MetastoreError as error:
        missing = isinstance(error, FragmentError) and error.missing
        return _failure(fragment, _told(context, fragment, error, str(error)), missing)
    except _DAMAGE as error:
        # What a reader throws at damaged bytes is not bounded by what it documents.
        text = _told(context, fragment, error, f"{fragment.path}: {reason(error)}")
        return _failure(fragment, text, isinstance(error, FileNotFoundError))


def _told(context: ProfileContext, fragment: Fragment, error: BaseException, text: str) -> str:
    """What is said of an error: not its text where values are hidden, for a reader may quote what it stumbled over."""
    if all(policy.values == "shown" for _, policy in context.layout.leaves):
        return text
    return f"{fragment.path}: cannot be read ({type(error).__name__}; a column's values are hidden, so no more is told)"


def _failure(fragment: Fragment, message: str, missing: bool) -> FragmentFailure:
    text = " ".join(message.split())
    return FragmentFailure(fragment.id, fragment.partition_key, fragment.path, text[:2000], missing)


def _profile(context: ProfileContext, fragment: Fragment) -> FragmentEntry:
    with fragment.source.open() as reader:
        row_count = reader.row_count
        if fragment.row_count is not None and fragment.row_count != row_count:
            raise FragmentError(
                f"{fragment.path}: {row_count} live rows where the table's metadata says {fragment.row_count}",
                path=fragment.path,
            )
        policies = {leaf.path: policy for leaf, policy in context.layout.leaves}
        unlisted: list[str] = []
        packed = fragment.id not in context.alone
        with ProfileWriter(context.store, "fragments", context.layout, row_count, packed=packed) as writer:
            for field, leaves in zip(context.schema, schema_leaves(context.schema), strict=True):
                profiles = profile_field(field, reader.read(field), policies.__getitem__, leaves=leaves)
                own = profiles[0].statistics
                if own.value_count + own.null_count != row_count:
                    raise FragmentError(
                        f"{fragment.path}: column {field.name!r} has {own.value_count + own.null_count} rows, "
                        f"the file {row_count}",
                        path=fragment.path,
                    )
                for profile in profiles:
                    writer.add(profile)
                    if policies[profile.statistics.column].lists and profile.statistics.frequencies == "estimated":
                        unlisted.append(profile.statistics.field_id)
        profiled = {field_identity(field) for field in context.schema}
        unprofiled = tuple(sorted(reader.stored_columns - profiled))
    return FragmentEntry(
        id=fragment.id,
        partition_key=fragment.partition_key,
        path=fragment.path,
        bytes=fragment.bytes,
        row_count=row_count,
        layout=context.layout.id,
        unprofiled=unprofiled,
        files=writer.files,
        retired=None,
        unlisted=tuple(unlisted),
    )
