"""Versions: what each one names, written last and only once, so that it is there whole or not at all.

    <storage>/versions/<number>.<revision>.json    names all that the version consists of
    <storage>/data/<unique>.parquet                runs and updates; what no version names does not exist

A compaction replaces runs by equal ones: a new revision of the same version.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from metastore_assets.errors import (
    CorruptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    VersionConflictError,
    VersionNotFoundError,
)
from metastore_assets.produce.dataset import Shard, State
from metastore_assets.produce.runs import Run, keys_of, keys_text
from metastore_assets.produce.storage import Storage

FORMAT = 1
DATA = "data"
_FOLDER = "versions"
_NAME = re.compile(r"versions/(\d{10,})\.(\d{4,})\.json")


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
    """One revision of one version."""

    number: int
    revision: int
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

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def numbers(self) -> dict[int, int]:
        """The newest revision of each version, by number, ascending."""
        found: dict[int, int] = {}
        for info in self._storage.list(_FOLDER):
            match = _NAME.fullmatch(info.path)
            if match:
                found[int(match[1])] = max(found.get(int(match[1]), 0), int(match[2]))
        return dict(sorted(found.items()))

    def latest(self) -> Manifest:
        """The newest version; NOTHING before the first."""
        numbers = self.numbers()
        return self.read_revision(*list(numbers.items())[-1]) if numbers else NOTHING

    def read(self, number: int) -> Manifest:
        """The newest revision of a version. Raises VersionNotFoundError."""
        if number == 0:
            return NOTHING
        numbers = self.numbers()
        if number not in numbers:
            there = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
            raise VersionNotFoundError(f"{self._storage.uri()} has no version {number}; there are: {there}")
        return self.read_revision(number, numbers[number])

    def publish(self, manifest: Manifest) -> None:
        """Make it the newest. Raises VersionConflictError when there is one of that number and revision already."""
        data = _encoded(manifest)
        path = _path(manifest.number, manifest.revision)
        try:
            self._storage.write(path, data, create=True)
        except ObjectExistsError:
            # A put whose answer was lost on the way is repeated by the client, and then finds its own object.
            if self._storage.read(path) != data:
                raise VersionConflictError(
                    f"{self._storage.uri(path)} was published by another process first; advance again"
                ) from None

    def read_revision(self, number: int, revision: int) -> Manifest:
        """One manifest. Raises VersionNotFoundError when it is gone."""
        path = _path(number, revision)
        try:
            return _decoded(json.loads(self._storage.read(path)), self._storage.uri(path))
        except ObjectNotFoundError:
            raise VersionNotFoundError(f"version {number} of {self._storage.uri()} has been expired") from None
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(f"{self._storage.uri(path)} is damaged ({type(error).__name__}: {error})") from error


def _path(number: int, revision: int) -> str:
    return f"{_FOLDER}/{number:010}.{revision:04}.json"


def manifest_path(path: str) -> tuple[int, int] | None:
    """Number and revision of the manifest at a path; None when it is another file."""
    match = _NAME.fullmatch(path)
    return (int(match[1]), int(match[2])) if match else None


def _encoded(manifest: Manifest) -> bytes:
    fields = {
        "format": FORMAT,
        # Makes two attempts differ, whatever else they agree on.
        "publisher": uuid.uuid4().hex,
        "number": manifest.number,
        "revision": manifest.revision,
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
        revision=fields["revision"],
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
