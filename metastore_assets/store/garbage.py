"""What a version no longer names of what the version before it did: written with it, removed when that one is dropped.

    entries/<unique>.garbage.parquet    paths, in row groups of as many as are removed at a time
    versions/oldest                      {"oldest": 7, "portion": 2}: the version to be dropped next, and the portions
                                         of its files that are removed already

What a version names was named by the one before or is new. So a file that one version names and the next one does not
is named by none after that, and may go with the last version that has it. Nothing has to be listed or compared for
that, and as removing is repeatable, a process may die, or two may work at it, at any point. Where `oldest` is missing
or wrong, the versions are listed.
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
"""Files that are removed at a time: as many as one request can name."""
_VERSIONS = 2
"""Versions that are dropped at a time: more than one, so that it gets done when `keep` is lowered."""


@dataclass(frozen=True)
class _State:
    oldest: int
    portion: int = 0


def write_garbage_manifest(
    objects: ObjectStore, version: Version, entries: Mapping[str, SegmentFiles], base: Version, dropped: Iterable[Any]
) -> str | None:
    """Write the paths that `base` names and the version, whose entries lie in those files, does not; the file's path.

    `dropped` are the entries of `base` that the version does not have, or has otherwise. None where there is no path.
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
    """Remove some of the versions up to the number `last`, and files that only they name, but for those spared.

    A version stays, and all after it, while the one that follows it is younger than `grace`.
    """
    if last < 1:
        return
    before = datetime.now(UTC) - grace
    begun = state = _read_state(documents)
    for _ in range(_VERSIONS):
        if state.oldest > last and not (state.portion and not documents.exists(state.oldest)):
            break  # unless it is gone already, and more versions are to be kept now than when that was begun
        following = documents.objects.info(documents.path(state.oldest + 1))
        if following is None:
            # It was expired, or somebody has moved the one behind it away.
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
        garbage = None  # then `expire` finds what went
    paths, more = _portion(objects, garbage, state.portion)
    # A version is gone before its first file is.
    objects.delete([documents.path(state.oldest)])
    objects.delete([path for path in paths if path not in spared])
    return replace(state, portion=state.portion + 1) if more else _State(following)


def _portion(objects: ObjectStore, path: str | None, number: int) -> tuple[list[str], bool]:
    """Some of the paths in a file, and whether there are more after them."""
    try:
        if path is None:
            return [], False
        with objects.open_parquet(path) as file:
            if number >= file.num_row_groups:
                return [], False
            return file.read_row_group(number).column(0).to_pylist(), number + 1 < file.num_row_groups
    except ObjectNotFoundError:
        return [], False  # somebody has removed it; `expire` finds what it named


def _skipped(documents: Documents, state: _State, before: datetime) -> _State:
    """The state where the version behind the oldest is not there."""
    numbers = documents.numbers()
    if numbers[0] != state.oldest or len(numbers) == 1:
        return _State(numbers[0])
    following = documents.objects.info(documents.path(numbers[1]))
    if following is None or following.modified >= before:
        return state
    # What only the one between named is not known; `expire` finds it.
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
