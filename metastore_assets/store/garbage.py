"""Garbage manifests: the files that a version no longer references and its predecessor did.

    entries/<unique>.garbage.parquet     paths, in row groups of as many as are deleted at a time
    versions/oldest                      {"oldest": 7, "portion": 2}: the version to drop next, and the portions of its
        files that are deleted already

Every file of a version was referenced by its predecessor or is new. So a file that one version references and the next
one does not is referenced by no later version, and can be deleted with the last version that has it. Nothing needs to
be listed or compared. Deletion can be repeated, so a process may die, or two may work on it, at any point. If `oldest`
is missing or wrong, the versions are listed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from metastore_assets.errors import CorruptionError, ObjectNotFoundError
from metastore_assets.store.documents import Documents
from metastore_assets.store.entries import FOLDER
from metastore_assets.store.json_fields import parse_json
from metastore_assets.store.manifest import Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.segments import SegmentFiles
from metastore_assets.store.version_document import load_version, stored_entries

GARBAGE_BATCH = 1000
"""Number of files that are deleted at a time: as many as one request can name."""
_VERSIONS = 2
"""Number of versions that are dropped at a time: more than one, to catch up after `keep` was lowered."""


@dataclass(frozen=True)
class _State:
    oldest: int
    portion: int = 0


def write_garbage_manifest(
    objects: ObjectStore, version: Version, entries: Mapping[str, SegmentFiles], base: Version, dropped: Iterable[Any]
) -> str | None:
    """Write the paths that `base` references and the new version does not; return the manifest's path, or None.

    `dropped` are the entries of `base` that the version removed or replaced.
    """
    paths = {path for entry in dropped if hasattr(entry, "files") for path in entry.files.paths()}
    paths |= {*base.files.paths(), *base.auxiliary_files()}
    paths |= {path for own in stored_entries(base) for path in own.files.paths()}
    paths -= {path for own in entries.values() for path in own.paths()}
    paths.difference_update(version.paths())
    if not paths:
        return None
    name = f"{FOLDER}/{uuid.uuid4().hex}.garbage.parquet"
    table = pa.table({"path": pa.array(sorted(paths), pa.string())})
    with objects.parquet_writer(name, table.schema, bounded=()) as writer:
        writer.write_table(table, GARBAGE_BATCH)
    return name


def drop_outdated(documents: Documents, last: int, grace: timedelta, spared: Collection[str]) -> None:
    """Drop some of the versions up to the number `last`, and files that only they reference, except spared ones.

    A version stays, with all later ones, while the version after it is younger than `grace`.
    """
    if last < 1:
        return
    before = datetime.now(UTC) - grace
    begun = state = _read_state(documents)
    for _ in range(_VERSIONS):
        if state.oldest > last and not (state.portion and not documents.exists(state.oldest)):
            break  # unless it is deleted already, and `keep` was raised since that began
        following = documents.objects.info(documents.path(state.oldest + 1))
        if following is None:
            # It has expired, or somebody has moved the version after it away.
            state = _skipped(documents, state, before)
        elif following.modified >= before:
            break
        else:
            state = _drop_portion(documents, state, spared)
    if state != begun:
        data = json.dumps(asdict(state)).encode()
        documents.objects.write(documents.oldest_path, data)


def _drop_portion(documents: Documents, state: _State, spared: Collection[str]) -> _State:
    objects, following = documents.objects, state.oldest + 1
    try:
        garbage = load_version(documents, following).garbage_manifest
    except CorruptionError:
        garbage = None  # `expire` finds the files
    paths, more = _portion(objects, garbage, state.portion)
    # The version is deleted before its first file.
    objects.delete([documents.path(state.oldest)])
    objects.delete([path for path in paths if path not in spared])
    return replace(state, portion=state.portion + 1) if more else _State(following)


def _portion(objects: ObjectStore, path: str | None, number: int) -> tuple[list[str], bool]:
    """Return some of the paths in a manifest, and whether more follow."""
    try:
        if path is None:
            return [], False
        with objects.open_parquet(path) as file:
            if number >= file.num_row_groups:
                return [], False
            return file.read_row_group(number).column(0).to_pylist(), number + 1 < file.num_row_groups
    except ObjectNotFoundError:
        return [], False  # somebody has deleted it; `expire` finds its files


def _skipped(documents: Documents, state: _State, before: datetime) -> _State:
    """Return the state after skipping the version that follows the oldest and is missing."""
    numbers = documents.numbers()
    if numbers[0] != state.oldest or len(numbers) == 1:
        return _State(numbers[0])
    following = documents.objects.info(documents.path(numbers[1]))
    if following is None or following.modified >= before:
        return state
    # The files that only the missing version referenced are unknown; `expire` finds them.
    documents.objects.delete([documents.path(state.oldest)])
    return _State(numbers[1])


def _read_state(documents: Documents) -> _State:
    try:
        fields = parse_json(documents.objects.read(documents.oldest_path))
        oldest, portion = fields["oldest"], fields["portion"]
        if oldest < 1 or portion < 0:
            raise ValueError
        return _State(int(oldest), int(portion))
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return _State(min(documents.numbers(), default=1))
