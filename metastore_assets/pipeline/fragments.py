"""Profiling of fragments: each task reads a bundle of fragments, and writes their profiles.

A fragment is a data file with its deletes, and its profile is its statistics. An entry describes a profiled fragment. A
profile spec says which statistics a profile has.

The profiles of a bundle share one file. Only a fragment that is alone in its partition gets separate files: they are
also the partition's files, which users read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import polars as pl
import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.errors import (
    FatalFileError,
    FragmentError,
    MetastoreError,
    StoreError,
    UnsupportedTypeError,
)
from metastore_assets.formats.base import Fragment, FragmentReader
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.profile_spec import ProfileSpec, field_identity
from metastore_assets.pipeline.profiles.files import ProfileWriter
from metastore_assets.pipeline.profiles.states_writer import StatesContent, StatesWriter
from metastore_assets.statistics.profile import ColumnProfile, profile_field
from metastore_assets.storage.corrupt_input import CORRUPTION_ERRORS, error_reason, is_unsupported
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, ProfileFiles
from metastore_assets.tasks.runner import limit_arrow_threads
from metastore_assets.values.columns import columns_by_field

_OPEN_COST = 256 << 10
"""Cost of opening a file: the number of bytes that are read in the same time."""
_DAMAGE = (*CORRUPTION_ERRORS, pl.exceptions.PolarsError, pl.exceptions.PanicException)


@dataclass(frozen=True)
class ProfilingContext:
    """The inputs that all profiling tasks of a refresh share."""

    store: ObjectStore
    """The table's folder below the Metastore's root."""
    table: TableConfig
    schema: pa.Schema
    spec: ProfileSpec
    alone: frozenset[str] = frozenset()
    """Ids of the fragments that get separate files, because each is the only one of its partition."""


@dataclass(frozen=True)
class FragmentFailure:
    """A fragment that could not be profiled, with the reason."""

    fragment_id: str
    partition_key: str
    path: str
    message: str
    missing: bool
    """Whether the data file is missing."""
    unsupported: bool = False
    """Whether the data file has unsupported content. False if it is damaged."""


Bundle: TypeAlias = Sequence[Fragment]
"""Fragments of one partition that one task profiles."""
Results: TypeAlias = list[FragmentEntry | FragmentFailure]


def read_cost(fragments: Iterable[Fragment]) -> float:
    """Return the cost of reading fragments: their size in bytes, and `_OPEN_COST` for each."""
    return float(sum(fragment.bytes + _OPEN_COST for fragment in fragments))


class FragmentProfiler:
    """A profiler of fragments on Spark, or in a child process if they are few and small."""

    def __init__(self, engine: Engine, context: ProfilingContext) -> None:
        self._engine = engine
        self._context = context

    def profile(self, bundles: Sequence[Bundle]) -> tuple[list[FragmentEntry], list[FragmentFailure]]:
        """Profile bundles in parallel.

        Return (entries of profiled fragments, failures).

        If a bundle crashes its reader, each of its fragments is read again on its own, and the profiles are then copied
        to one file. A fragment that crashes its reader again is a failure.
        """
        results, crashes = self._profile(bundles)
        if crashes:
            crashed_bundles = [bundle for bundle, _ in crashes]
            single_results, crashes = self._profile([(fragment,) for bundle in crashed_bundles for fragment in bundle])
            results += self._share_files(crashed_bundles, single_results)
            results += [_failure(bundle[0], message, is_missing_file=False) for bundle, message in crashes]
        return (
            [result for result in results if isinstance(result, FragmentEntry)],
            [result for result in results if isinstance(result, FragmentFailure)],
        )

    def _share_files(self, bundles: Sequence[Bundle], results: Results) -> Results:
        """Copy profiles to one shared file per bundle, and delete the files they were copied from.

        If a bundle has only one profile, this profile is not copied, and its file stays.

        Args:
            bundles: The bundles, for each of which a shared file is written.
            results: The results of their fragments. Each profile is in a file of its own.

        Returns:
            The results. Entries of copied profiles refer to the shared files.
        """
        # Imported here, because few refreshes need it.
        from metastore_assets.pipeline.merging.compaction import CopyTask, run_copies

        # Without columns there are no states.
        written_files = {
            result.id: result.files for result in results if isinstance(result, FragmentEntry) and result.files.states
        }
        tasks = []
        for bundle in bundles:
            files = tuple(written_files[fragment.id] for fragment in bundle if fragment.id in written_files)
            if len(files) > 1:
                tasks.append(CopyTask("fragments", files))
        context = self._context
        copied_files = run_copies(self._engine, context.store, len(context.spec.columns), tasks).files
        context.store.delete([files.states for files in written_files.values() if files.name in copied_files])
        return [
            replace(result, files=copied_files[result.files.name])
            if isinstance(result, FragmentEntry) and result.files.name in copied_files
            else result
            for result in results
        ]

    def _profile(self, bundles: Sequence[Bundle]) -> tuple[Results, list[tuple[Bundle, str]]]:
        """Try once to profile each bundle.

        Return (results, crashes).

        A crash is (bundle, error message) of a bundle with a file that crashed the process that read it.
        """
        if not bundles:
            return [], []
        runner = self._engine.reading_runner([fragment for bundle in bundles for fragment in bundle])
        outcomes = runner.outcomes(
            partial(_profile_with_one_thread, self._context),
            bundles,
            paths=[bundle[0].path for bundle in bundles],
            costs=list(map(read_cost, bundles)),
        )
        results: Results = []
        crashes = []
        for bundle, outcome in zip(bundles, outcomes, strict=True):
            if isinstance(outcome, FatalFileError):
                crashes.append((bundle, str(outcome)))
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                results += outcome
        return results, crashes


def _profile_with_one_thread(context: ProfilingContext, bundle: Bundle) -> Results:
    limit_arrow_threads()
    return profile_bundle(context, bundle)


def profile_bundle(context: ProfilingContext, bundle: Bundle) -> Results:
    """Read the fragments of one bundle, and write their profiles.

    Runs in a worker process.

    Args:
        context: The table, its store and profile spec.
        bundle: The fragments.

    Returns:
        An entry for each profiled fragment, and a failure for each other fragment.

    Raises:
        StoreError: A profile cannot be written.
    """
    if len(bundle) == 1 and (bundle[0].id in context.alone or not context.spec.columns):
        (fragment,) = bundle
        return [_outcome(context, fragment, partial(_profile_to_separate_files, context, fragment))]
    with StatesWriter(context.store, "fragments", StatesContent.of_fragments(context.spec)) as writer:
        # A fragment that fails halfway leaves a section that nothing references.
        results = [
            _outcome(context, fragment, partial(_profile_to_section, context, fragment, writer)) for fragment in bundle
        ]
    if all(isinstance(result, FragmentFailure) for result in results):
        context.store.delete([writer.path])
    files = {profile.name: profile for profile in writer.files}
    return [
        replace(result, files=files[result.files.name]) if isinstance(result, FragmentEntry) else result
        for result in results
    ]


def _outcome(
    context: ProfilingContext, fragment: Fragment, profile: Callable[[], FragmentEntry]
) -> FragmentEntry | FragmentFailure:
    """Return the entry that `profile` returns, or a failure if the fragment cannot be read.

    Raises:
        StoreError: The profile cannot be written.
    """
    try:
        return profile()
    except StoreError:
        raise
    except MetastoreError as error:
        is_missing_file = isinstance(error, FragmentError) and error.missing
        is_unsupported_file = isinstance(error, UnsupportedTypeError) or (
            isinstance(error, FragmentError) and error.unsupported
        )
        return _failure(
            fragment, _error_text(context, fragment, error, str(error)), is_missing_file, is_unsupported_file
        )
    except _DAMAGE as error:
        # Readers of damaged bytes raise more errors than they document.
        text = _error_text(context, fragment, error, f"{fragment.path}: {error_reason(error)}")
        return _failure(fragment, text, isinstance(error, FileNotFoundError), is_unsupported(error))


def _error_text(context: ProfilingContext, fragment: Fragment, error: BaseException, text: str) -> str:
    """Return `text`, the message of an error, unless it may quote hidden values.

    In that case, return a message with only the path of the fragment and the type of the error.
    """
    if isinstance(error, FragmentError) or all(policy.values == "shown" for _, policy in context.spec.columns):
        return text
    return f"{fragment.path}: cannot be read ({type(error).__name__}; details are left out to protect hidden values)"


def _failure(
    fragment: Fragment, message: str, is_missing_file: bool, is_unsupported_file: bool = False
) -> FragmentFailure:
    text = " ".join(message.split())
    return FragmentFailure(
        fragment.id, fragment.partition_key, fragment.path, text[:2000], is_missing_file, is_unsupported_file
    )


def _profile_to_section(context: ProfilingContext, fragment: Fragment, writer: StatesWriter) -> FragmentEntry:
    """Write the profile of a fragment to a new section of a shared file.

    In the returned entry, `files` has only the name of the section. The caller replaces `files` when the shared file is
    finished.
    """
    with _open(fragment) as reader:
        section = writer.begin(reader.row_count)
        entry = _profile_columns(context, fragment, reader, writer.add)
    return replace(entry, files=ProfileFiles("", "", (), section=section))


def _profile_to_separate_files(context: ProfilingContext, fragment: Fragment) -> FragmentEntry:
    with (
        _open(fragment) as reader,
        ProfileWriter(context.store, "fragments", context.spec, reader.row_count) as writer,
    ):
        entry = _profile_columns(context, fragment, reader, writer.add)
    return replace(entry, files=writer.files)


@contextmanager
def _open(fragment: Fragment) -> Iterator[FragmentReader]:
    """Open a fragment for reading.

    Raises:
        FragmentError: The fragment and the table's metadata have different row counts.
    """
    with fragment.source.open() as reader:
        if fragment.row_count is not None and fragment.row_count != reader.row_count:
            raise FragmentError(
                f"{fragment.path}: {reader.row_count} live rows where the table's metadata says {fragment.row_count}",
                path=fragment.path,
            )
        yield reader


def _profile_columns(
    context: ProfilingContext, fragment: Fragment, reader: FragmentReader, add: Callable[[ColumnProfile], None]
) -> FragmentEntry:
    """Pass the profile of each column of a fragment to `add`.

    Return the fragment's entry without files.

    Raises FragmentError if a column cannot be read, or has another number of rows than the fragment.
    """
    row_count = reader.row_count
    policies = {column.path: policy for column, policy in context.spec.columns}
    not_enumerated: list[str] = []
    for field, columns in zip(context.schema, columns_by_field(context.schema), strict=True):
        profiles = profile_field(field, reader.read(field, encoded=True), policies.__getitem__, columns=columns)
        first = profiles[0].statistics
        column_rows = first.value_count + first.null_count
        if column_rows != row_count:
            raise FragmentError(
                f"{fragment.path}: column {field.name!r} has {column_rows} rows, the file {row_count}",
                path=fragment.path,
            )
        for profile in profiles:
            add(profile)
            if policies[profile.statistics.column].is_enumerated and profile.statistics.frequencies in (
                "estimated",
                "repeated",
            ):
                not_enumerated.append(profile.statistics.field_id)
    profiled_ids = {field_identity(field) for field in context.schema}
    return FragmentEntry(
        id=fragment.id,
        partition_key=fragment.partition_key,
        path=fragment.path,
        bytes=fragment.bytes,
        row_count=row_count,
        spec_id=context.spec.id,
        unprofiled=tuple(sorted(reader.stored_columns - profiled_ids)),
        files=ProfileFiles("", "", ()),
        not_enumerated=tuple(not_enumerated),
    )
