"""Versions: what each one names, written last and only once, so that it is there whole or not at all.

    <storage>/versions/<document>.json     names all that a version consists of
    <storage>/data/<unique>.parquet        runs and updates; what no version names does not exist

A compaction replaces runs by equal ones: one more document of the same version. So documents are numbered through, and
the numbers of their versions never decrease.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import (
    CorruptionError,
    ObjectNotFoundError,
    StoreError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.produce.dataset import Shard, State
from metastore_assets.produce.runs import Run, keys_of, keys_text
from metastore_assets.store.documents import Documents
from metastore_assets.store.expire import Expired, expire, without
from metastore_assets.store.objects import ObjectStore

FORMAT = 2
DATA = "data"


@dataclass(frozen=True)
class StageState:
    """What a version says of one node."""

    fingerprint: str
    form: str
    """What its files look like, as a digest."""
    content: State
    mappings: State | None
    update: tuple[Run, ...]
    """Files of the update that led to the version, in key order; none when nothing changed."""
    reset: bool = False
    """Whether the stage was built anew: the update adds all there is, and who follows it has to begin from nothing."""
    counter: int = 0
    """The last number that was given to a novel target key."""

    def paths(self) -> Iterator[str]:
        """All files."""
        states = [self.content, *([self.mappings] if self.mappings else [])]
        yield from (run.path for state in states for run in state.runs())
        yield from (run.path for run in self.update)


@dataclass(frozen=True)
class Manifest:
    """One version, as made or as compacted."""

    number: int
    document: int
    """Number of its document."""
    stages: Mapping[str, StageState]
    sources: Mapping[str, int] = field(default_factory=dict)
    """The last version of its source that was applied to a root, where the source counts them."""

    def paths(self) -> set[str]:
        """All files."""
        return {path for stage in self.stages.values() for path in stage.paths()}


NOTHING = Manifest(0, 0, {})
"""What there is before the first version."""


class Manifests:
    """The manifests in a storage."""

    def __init__(self, storage: ObjectStore) -> None:
        self._storage = storage
        self._documents = Documents(storage)

    def latest(self) -> Manifest:
        """The newest version; NOTHING before the first."""
        document = self._documents.newest()
        return self._read(document) if document else NOTHING

    def read(self, number: int) -> Manifest:
        """A version as it was compacted last. Raises VersionNotFoundError."""
        if number == 0:
            return NOTHING
        found = self._last_of(number, self.latest())
        if found is None:
            numbers = [one.number for one in map(self._there, self._documents.numbers()) if one is not None]
            there = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise VersionNotFoundError(f"{self._storage.uri()} has no version {number}; there are: {there}")
        return found

    def publish(self, manifest: Manifest) -> None:
        """Make it the newest. Raises VersionConflictError when there is another document of that number already."""
        if not self._documents.create(manifest.document, _encoded(manifest)):
            raise VersionConflictError(
                f"{self._storage.uri(self._documents.path(manifest.document))} was published by another process first; "
                "advance again"
            )

    def expire(self, keep: int, grace: timedelta) -> Expired:
        """Remove all but the newest `keep` versions, then files that no manifest that is left names.

        Nothing younger than `grace` is removed, nor what a manifest names that was the newest less than `grace` ago: a
        running publisher may have begun from it. So `grace` has to be longer than the longest run.
        """
        if keep < 1:
            raise ValueError(f"keep = {keep}: at least one version stays")
        oldest: list[int] = []

        def first(documents: Sequence[int]) -> int:
            begin = self._there(documents[0])
            oldest.extend([begin.number] if begin else [])
            latest = self.latest()
            kept = self._last_of(latest.number - keep + 1, latest)
            return kept.document if kept else documents[0]

        def unnamed(paths: pa.Array, documents: Sequence[int]) -> pa.Array:
            paths = paths.filter(pc.starts_with(paths, f"{DATA}/"))
            # One that another `expire` has just removed names nothing any more.
            left = [manifest for manifest in map(self._there, documents) if manifest is not None]
            oldest.extend(manifest.number for manifest in left[:1])
            named = {path for manifest in left for path in manifest.paths()}
            return without(paths, pa.array(sorted(named), pa.string()))

        removed = expire(self._documents, first, unnamed, grace)
        return replace(removed, versions=oldest[-1] - oldest[0] if oldest else 0)

    def _last_of(self, number: int, latest: Manifest) -> Manifest | None:
        """The last document of a version, which is among as many as there were compactions; None where it is gone."""
        if not 0 < number <= latest.number:
            return None
        low, high = number, latest.document - (latest.number - number)
        while low < high:
            middle = (low + high + 1) // 2
            found = self._there(middle)
            low, high = (middle, high) if found is None or found.number <= number else (low, middle - 1)
        found = self._there(low)
        return found if found is not None and found.number == number else None

    def _there(self, document: int) -> Manifest | None:
        """A manifest; None when it is gone."""
        try:
            return self._read(document)
        except VersionNotFoundError:
            return None

    def _read(self, document: int) -> Manifest:
        path = self._documents.path(document)
        try:
            return _decoded(json.loads(self._documents.read(document)), self._storage.uri(path))
        except ObjectNotFoundError:
            raise VersionNotFoundError(f"{self._storage.uri(path)} has been expired") from None
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(f"{self._storage.uri(path)} is damaged ({type(error).__name__}: {error})") from error


def _encoded(manifest: Manifest) -> bytes:
    fields = {
        "format": FORMAT,
        # Makes two attempts differ, whatever else they agree on.
        "publisher": uuid.uuid4().hex,
        "number": manifest.number,
        "document": manifest.document,
        "sources": dict(manifest.sources),
        "stages": {name: _stage_json(stage) for name, stage in manifest.stages.items()},
    }
    return json.dumps(fields, indent=1).encode()


def _stage_json(stage: StageState) -> dict[str, Any]:
    return {
        "fingerprint": stage.fingerprint,
        "form": stage.form,
        "content": _state_json(stage.content),
        "mappings": _state_json(stage.mappings) if stage.mappings else None,
        "update": [asdict(run) for run in stage.update],
        "reset": stage.reset,
        "counter": stage.counter,
    }


def _state_json(state: State) -> dict[str, Any]:
    return {
        "splitters": keys_text(state.splitters),
        "shards": [[asdict(run) for run in shard.runs] for shard in state.shards],
        "level0": [asdict(run) for run in state.level0],
        "credit": state.credit,
    }


def _decoded(fields: dict[str, Any], uri: str) -> Manifest:
    if fields["format"] > FORMAT:
        raise StoreError(f"{uri} was written by a newer release, in format {fields['format']}: upgrade this one")
    return Manifest(
        number=fields["number"],
        document=fields["document"],
        sources=fields["sources"],
        stages={name: _stage(stage) for name, stage in fields["stages"].items()},
    )


def _stage(fields: dict[str, Any]) -> StageState:
    return StageState(
        fingerprint=fields["fingerprint"],
        form=fields["form"],
        content=_state(fields["content"]),
        mappings=_state(fields["mappings"]) if fields["mappings"] else None,
        update=_runs(fields["update"]),
        reset=fields["reset"],
        counter=fields["counter"],
    )


def _state(fields: dict[str, Any]) -> State:
    return State(
        splitters=keys_of(fields["splitters"]),
        shards=tuple(Shard(_runs(runs)) for runs in fields["shards"]),
        level0=_runs(fields["level0"]),
        credit=fields["credit"],
    )


def _runs(entries: list[dict[str, Any]]) -> tuple[Run, ...]:
    return tuple(Run(**entry) for entry in entries)
