"""The immutable state of a dataflow, which names the files of each node (a root or a stage).

The state also has digests of the nodes' declarations. If the source of a root has versions, the state has the last
version that was applied.

`to_json` converts the state to a JSON object, which can be stored in any document. A file of a dataflow is garbage if
no published document names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.produce.dataset import DatasetState, Shard
from metastore_assets.produce.runs import Run, keys_of, keys_text

FORMAT = 4
_TUPLES = ("sums", "changes")


@dataclass(frozen=True)
class StageState:
    """The state of one node of a dataflow."""

    fingerprint: str
    """Digest of the declaration under which the state was built."""
    form: str
    """Digest of the columns, types and order of its files."""
    content: DatasetState
    mappings: DatasetState | None
    """The pairs (source key, target key) of a stage; None for roots and sum stages."""
    update: tuple[Run, ...]
    """Files of the update that led to the state, in key order; empty if nothing changed."""
    reset: bool = False
    """Whether the stage was rebuilt or loaded. The update then adds all rows, and its readers must start over."""
    counter: int = 0
    """The last number that was assigned to a new target key."""
    loaded: bool = False
    """Whether the content was loaded. The update then adds all content, and has no files."""

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files of the node, relative to the dataflow's storage."""
        states = [self.content, *([self.mappings] if self.mappings else [])]
        yield from (run.path for state in states for run in state.runs())
        yield from (run.path for run in self.update)


@dataclass(frozen=True)
class FlowState:
    """The immutable state of all nodes of a dataflow.

    `FlowState()` is the state before the first step.
    """

    stages: Mapping[str, StageState] = field(default_factory=dict)
    sources: Mapping[str, int] = field(default_factory=dict)
    """{root: last version of its source that was applied}, for roots whose source has versions."""

    def paths(self) -> set[str]:
        """Return the paths of all files, relative to the dataflow's storage."""
        return {path for stage in self.stages.values() for path in stage.paths()}

    def to_json(self) -> dict[str, Any]:
        """Return the state as a JSON object.

        Equal states give equal objects.
        """
        stages = {name: _stage_json(stage) for name, stage in self.stages.items()}
        return {"format": FORMAT, "sources": dict(self.sources), "stages": stages}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> FlowState:
        """Parse the result of `to_json`.

        Raises:
            StoreError: An older or newer release wrote the state in another format.
            CorruptionError: The fields are damaged.
        """
        try:
            if fields["format"] > FORMAT:
                raise StoreError(
                    f"the state of a dataflow was written by a newer release, in format {fields['format']}; this one "
                    f"reads {FORMAT}: upgrade it"
                )
            if fields["format"] < FORMAT:
                raise StoreError(
                    f"the state of a dataflow was written by an older release, in format {fields['format']}; this one "
                    f"reads {FORMAT}: start with an empty folder"
                )
            return cls({name: _stage(stage) for name, stage in fields["stages"].items()}, dict(fields["sources"]))
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise CorruptionError(
                f"the state of a dataflow is damaged ({type(error).__name__}: {error}); restore what names it"
            ) from error


def _stage_json(stage: StageState) -> dict[str, Any]:
    return {
        "fingerprint": stage.fingerprint,
        "form": stage.form,
        "content": _state_json(stage.content),
        "mappings": _state_json(stage.mappings) if stage.mappings else None,
        "update": [_run_json(run) for run in stage.update],
        "reset": stage.reset,
        "counter": stage.counter,
        "loaded": stage.loaded,
    }


def _state_json(state: DatasetState) -> dict[str, Any]:
    return {
        "splitters": keys_text(state.splitters),
        "shards": [[_run_json(run) for run in shard.runs] for shard in state.shards],
        "level0": [_run_json(run) for run in state.level0],
        "credit": state.credit,
    }


def _run_json(run: Run) -> dict[str, Any]:
    return {**asdict(run), **{name: list(getattr(run, name)) for name in _TUPLES}}


def _stage(fields: dict[str, Any]) -> StageState:
    return StageState(
        fingerprint=fields["fingerprint"],
        form=fields["form"],
        content=_state(fields["content"]),
        mappings=_state(fields["mappings"]) if fields["mappings"] else None,
        update=_runs(fields["update"]),
        reset=fields["reset"],
        counter=fields["counter"],
        loaded=fields["loaded"],
    )


def _state(fields: dict[str, Any]) -> DatasetState:
    return DatasetState(
        splitters=keys_of(fields["splitters"]),
        shards=tuple(Shard(_runs(runs)) for runs in fields["shards"]),
        level0=_runs(fields["level0"]),
        credit=fields["credit"],
    )


def _runs(entries: list[dict[str, Any]]) -> tuple[Run, ...]:
    return tuple(
        Run(**{**entry, "sums": tuple(entry["sums"]), "changes": tuple(entry["changes"])}) for entry in entries
    )
