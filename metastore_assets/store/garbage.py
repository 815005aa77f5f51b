"""Garbage: the files that one version references and the next version does not.

The document of the next version lists them, or a garbage manifest does if there are many:

    entries/<unique>.garbage.parquet     paths; each row group (portion) has the files of one deletion
    versions/oldest                      {"oldest": 7, "portion": 2}: the version to delete next, and the number of
                                         portions of its garbage that are deleted already

A file contains entries (records of a version's fragments and partitions), profiles (their statistics), value counts or
a part of an index. A version references only new files and files of the previous version. So no later version
references garbage again. Each garbage file is deleted together with the last version that references it.

Deletions can be repeated, so a process may die at any point, and two processes may work at the same time. If `oldest`
is missing or too low, the versions are listed. If it is too high, the versions below it remain until `expire`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.store.documents import Documents
from metastore_assets.store.entries import FOLDER
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.objects import ObjectStore, ParquetOptions
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.store.version import Version
from metastore_assets.store.version_document import load_version, stored_entries

GARBAGE_BATCH = 1000
"""Number of files that are deleted at a time: as many as one request can name."""
MAX_LISTED = 64
"""Maximum number of files that the document of a version lists, so that a small commit writes no manifest."""
_VERSIONS = 2
"""Number of versions that are deleted at a time: more than one, to catch up after `keep` was lowered."""


@dataclass(frozen=True)
class _Progress:
    oldest: int
    portion: int = 0


def garbage_paths(garbage: Iterable[str], entries: Mapping[str, SegmentFiles], base: Version) -> tuple[str, ...]:
    """Return the sorted paths of the files that `base` references and the new version does not.

    The garbage manifest of `base` is one of them.

    Args:
        garbage: Paths of the files with profiles, value counts or indexes that `base` references and the new version
            does not. The result contains all of them.
        entries: The files with the entries of the new version, by name of the kind (see `store.entries`). The result
            also contains the files with entries of `base` that the new version does not have.
        base: The version that the new one follows.
    """
    paths: set[str] = set()
    for kind_entries in stored_entries(base):
        paths |= {*kind_entries.files.paths()}.difference(entries[kind_entries.kind.name].paths())
    paths.update(garbage, () if base.garbage_manifest is None else (base.garbage_manifest,))
    return tuple(sorted(paths))


def write_garbage_manifest(objects: ObjectStore, paths: Sequence[str]) -> str:
    """Write a manifest of files that the next version does not reference.

    Return the path of the manifest.

    `paths` are the paths of these files. They are written in the given order, one portion of `GARBAGE_BATCH` after the
    other.
    """
    name = f"{FOLDER}/{uuid.uuid4().hex}.garbage.parquet"
    table = pa.table({"path": pa.array(paths, pa.string())})
    with objects.parquet_writer(name, table.schema, ParquetOptions(bounded_columns=())) as writer:
        writer.write_table(table, GARBAGE_BATCH)
    return name


def drop_outdated(documents: Documents, last: int, grace: timedelta, spared_paths: Collection[str]) -> None:
    """Delete the oldest versions, and the files that only they reference, in at most `_VERSIONS` steps.

    Each step deletes up to `GARBAGE_BATCH` files of one version. The first step of a version also deletes its document.
    The next call continues where this one ends, even in the middle of a version.

    Args:
        documents: The versions.
        last: Number of the newest version that may be deleted.
        grace: A version is deleted only if the next version is older than this.
        spared_paths: Paths of files that must be retained.
    """
    if last < 1:
        return
    before = datetime.now(UTC) - grace
    recorded_state = state = _read_state(documents)
    if state is None:
        numbers = documents.numbers()
        if not numbers:
            return  # A user has removed the table's folder.
        state = _Progress(numbers[0])
    for _ in range(_VERSIONS):
        # If `keep` was raised while a version was being deleted, finish that version.
        is_half_deleted = state.portion and not documents.exists(state.oldest)
        if state.oldest > last and not is_half_deleted:
            break
        following = documents.objects.info(documents.path(state.oldest + 1))
        if following is None:
            # The version has expired, or a user has moved the next version away.
            state = _skip_missing(documents, state, before)
        elif following.modified >= before:
            break
        else:
            state = _drop_portion(documents, state, spared_paths)
    if state != recorded_state:
        # Also without a deletion: if nothing is recorded, the next call would list all versions again.
        data = json.dumps(asdict(state)).encode()
        documents.objects.write(documents.oldest_path, data)


def _drop_portion(documents: Documents, state: _Progress, spared_paths: Collection[str]) -> _Progress:
    """Delete the version document `state.oldest`, if it exists, then one portion of its files.

    The next version lists the files to delete, in its document or in its garbage manifest. Files in `spared_paths` are
    retained. If the list cannot be read, only the document of `state.oldest` is deleted. `expire` deletes the files
    later.

    Returns:
        The progress after this portion. After the last portion, it is the start of the next version.
    """
    objects, following = documents.objects, state.oldest + 1
    try:
        version = load_version(documents, following)
        paths, has_more = list(version.garbage), False
        if not paths:
            paths, has_more = _read_portion(objects, version.garbage_manifest, state.portion)
    except CorruptionError:
        paths, has_more = [], False  # `expire` deletes these files instead.
    # The version is deleted before its first file.
    objects.delete([documents.path(state.oldest)])
    objects.delete([path for path in paths if path not in spared_paths])
    return replace(state, portion=state.portion + 1) if has_more else _Progress(following)


def _read_portion(objects: ObjectStore, path: str | None, number: int) -> tuple[list[str], bool]:
    """Return (paths in one portion of a garbage manifest, whether more portions follow).

    The result is ([], False) if there is no such portion, or if the manifest is missing or damaged.

    Args:
        objects: The table's folder.
        path: Path of the manifest; None if the version has none.
        number: Number of the portion, from 0.
    """
    try:
        if path is None:
            return [], False
        with objects.open_parquet(path) as file:
            if number >= file.num_row_groups:
                return [], False
            return file.read_row_group(number).column(0).to_pylist(), number + 1 < file.num_row_groups
    except (ObjectNotFoundError, CorruptionError):
        return [], False  # Another process has deleted the manifest, or it is damaged; `expire` deletes its files.


def _skip_missing(documents: Documents, state: _Progress, before: datetime) -> _Progress:
    """Return the progress after a gap in the numbers of versions.

    May delete the document of `state.oldest`.

    The caller has found that version `state.oldest + 1` does not exist. There are three cases:

    - `state.oldest` is not the oldest existing version, or it is the only one. The new progress starts at the oldest
      existing version.
    - The next existing version was published at `before` or later. The progress remains `state`.
    - Otherwise, the document of `state.oldest` is deleted. The new progress starts at the next existing version. The
      files of the deleted version stay: `expire` deletes those that no version references any more.
    """
    oldest, *newer = documents.numbers() or [state.oldest]  # None if a user has removed the table's folder.
    if oldest != state.oldest or not newer:
        return _Progress(oldest)
    next_existing = newer[0]
    info = documents.objects.info(documents.path(next_existing))
    if info is None or info.modified >= before:
        return state
    # It is unknown which files only the missing versions between both referenced; `expire` deletes them.
    documents.objects.delete([documents.path(oldest)])
    return _Progress(next_existing)


def _read_state(documents: Documents) -> _Progress | None:
    """Return the progress of deletions, which the file `versions/oldest` records.

    Returns None if the file is missing or damaged.
    """
    try:
        fields = parse_json(documents.objects.read(documents.oldest_path))
        oldest, portion = fields["oldest"], fields["portion"]
        if oldest < 1 or portion < 0:
            raise ValueError
        return _Progress(int(oldest), int(portion))
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, OverflowError):
        return None
