"""A graph of stages with its versions in a storage: advance it, read it, and keep it tidy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta
from itertools import chain

import polars as pl

from metastore_assets.errors import GraphError, StageChangedError, VersionConflictError
from metastore_assets.produce.compaction import Work, compacted, rewritten
from metastore_assets.produce.dataset import Dataset, State
from metastore_assets.produce.executor import Executor, LocalExecutor
from metastore_assets.produce.graph import Typed, typed_graph
from metastore_assets.produce.layout import GONE, Layout
from metastore_assets.produce.manifest import DATA, Manifest, Manifests, StageState
from metastore_assets.produce.parts import Part
from metastore_assets.produce.rows import CHANGE
from metastore_assets.produce.runs import RunWriter
from metastore_assets.produce.settings import Settings
from metastore_assets.produce.stages import Node, Root
from metastore_assets.produce.stepping import Environment, empty_state, step_root, step_stage
from metastore_assets.produce.updates import DELETE, External, checked
from metastore_assets.produce.view import View
from metastore_assets.store.expire import Expired
from metastore_assets.store.objects import ObjectStore

_ATTEMPTS = 20
"""How often a version is planned anew because another publisher was first."""


class Dataflow:
    """Roots and stages over one storage. Any number of processes may advance it at once: one of them wins each time."""

    def __init__(
        self,
        storage: ObjectStore,
        nodes: Sequence[Node],
        *,
        executor: Executor | None = None,
        settings: Settings | None = None,
        check: bool = False,
    ) -> None:
        """Raises GraphError when the declaration cannot run.

        With `check`, every Produce function is called twice, and ProduceError is raised where it gives something else.
        """
        self._storage = storage
        self._graph = typed_graph(nodes)
        self._manifests = Manifests(storage)
        self._executor = executor or LocalExecutor()
        self._settings = settings or Settings()
        self._check = check

    def version(self, number: int | None = None) -> View:
        """A version, the newest when none is named; version 0 is empty. Raises VersionNotFoundError."""
        manifest = self._manifests.latest() if number is None else self._manifests.read(number)
        return View(self._storage, self._graph, manifest)

    def advance(
        self,
        updates: Mapping[str, External],
        versions: Mapping[str, int] | None = None,
        *,
        sort: bool = False,
    ) -> int:
        """Apply updates of roots to all stages, and publish the next version; its number.

        `versions` says for a root which version of its source its update leads to: one that has been applied already
        is skipped, and when nothing is left to apply, no version is published. With `sort`, updates that are not
        sorted are. Raises UpdateError, ProduceError, CorruptionError or StageChangedError; the last version stands.
        """
        sources = dict(versions or {})
        for name in {*updates, *sources}:
            if not isinstance(self._typed(name).node, Root):
                raise GraphError(f"{name!r} is a stage; updates are of roots")
        latest = self._manifests.latest()
        self._check_declared(latest)
        applied = latest.sources
        incoming: dict[str, Part] = {}
        scratch: list[str] = []
        try:
            for name, update in updates.items():
                if name not in sources or sources[name] > applied.get(name, sources[name] - 1):
                    incoming[name] = self._received(name, update, scratch, sort=sort)
            return self._publish(lambda base: self._next(base, incoming, sources, bool(updates), scratch), scratch)
        finally:
            self._clean(scratch)

    def rebuild(self, *names: str) -> int:
        """Build stages and all that they feed from nothing, and publish the next version; its number.

        Needed after a stage was declared otherwise. Their updates then add all there is (`View.is_reset`). A root is
        emptied: its source has to be given whole again.
        """
        wanted = {self._typed(name).name for name in names}
        for name, typed in self._graph.items():
            if wanted & set(typed.feeders):
                wanted.add(name)
        scratch: list[str] = []
        try:
            return self._publish(lambda base: self._stepped(base, {}, {}, wanted, scratch), scratch)
        finally:
            self._clean(scratch)

    def compact(self, *, full: bool = False) -> bool:
        """Merge all runs that are due, or with `full` every shard into one run; whether there was anything to do.

        Changes neither the version's number nor what it holds. Of two compactions, or one and a publisher, at once, one
        is without effect. Raises StageChangedError.
        """
        base = self._manifests.latest()
        self._check_declared(base)
        work = Work(self._executor, DATA, self._settings)

        def merged(layout: Layout, state: State) -> State:
            dataset = Dataset(self._storage, layout, state)
            tidy = not state.level0 and all(len(shard.runs) <= 1 for shard in state.shards)
            if full:
                return state if tidy else rewritten(dataset, work)
            return compacted(dataset, work, unlimited=True)

        stages = dict(base.stages)
        for name in base.stages.keys() & self._graph.keys():
            typed, state = self._graph[name], base.stages[name]
            content = merged(typed.content, state.content)
            mappings = merged(typed.mappings, state.mappings) if typed.mappings and state.mappings else None
            stages[name] = replace(state, content=content, mappings=mappings)
        new = replace(base, document=base.document + 1, stages=stages)
        if new.paths() == base.paths():
            return False
        try:
            self._manifests.publish(new)
        except VersionConflictError:
            self._clean(sorted(new.paths() - base.paths()))
            return False
        return True

    def expire(self, keep: int, grace: timedelta = timedelta(days=1)) -> Expired:
        """Remove all but the newest versions, and files that none names and that are older than `grace`.

        `grace` has to be longer than the longest `advance`, so that nothing of a running one is removed.
        """
        return self._manifests.expire(keep, grace)

    def _publish(self, plan: Callable[[Manifest], Manifest | None], scratch: list[str]) -> int:
        for _ in range(_ATTEMPTS):
            base = self._manifests.latest()
            new = plan(base)
            if new is None:
                return base.number
            try:
                self._manifests.publish(new)
            except VersionConflictError:
                scratch += new.paths() - base.paths()
                continue
            return new.number
        raise VersionConflictError(
            f"{self._storage.uri()}: other processes published {_ATTEMPTS} versions while this one was made; try again"
        )

    def _next(
        self,
        base: Manifest,
        incoming: Mapping[str, Part],
        sources: Mapping[str, int],
        updates: bool,
        scratch: list[str],
    ) -> Manifest | None:
        """The version behind `base`; None when all that was given has been applied by then."""
        fresh = {
            name: update
            for name, update in incoming.items()
            if name not in sources or sources[name] > base.sources.get(name, sources[name] - 1)
        }
        ahead = {name: version for name, version in sources.items() if version > base.sources.get(name, version - 1)}
        if (updates or sources) and not fresh and not ahead:
            return None
        return self._stepped(base, fresh, ahead, set(), scratch)

    def _stepped(
        self,
        base: Manifest,
        incoming: Mapping[str, Part],
        sources: Mapping[str, int],
        rebuilt: set[str],
        scratch: list[str],
    ) -> Manifest:
        """All nodes in the order of the graph, each once."""
        self._check_declared(base, rebuilt)
        env = Environment(self._storage, self._executor, self._settings, self._check, scratch)
        former = {name: base.stages.get(name, empty_state(typed)) for name, typed in self._graph.items()}
        for name in rebuilt:
            # Numbers go on: an id that is out in the world never comes to mean something else.
            former[name] = replace(empty_state(self._graph[name]), counter=former[name].counter)
        now: dict[str, StageState] = {}
        try:
            for name, typed in self._graph.items():
                whole = name in rebuilt or (base.number > 0 and name not in base.stages)
                if isinstance(typed.node, Root):
                    now[name] = replace(former[name], update=(), reset=whole)
                    if name in incoming:
                        now[name] = step_root(env, typed, now[name], incoming[name])
                else:
                    now[name] = step_stage(env, typed, self._graph, former[name], former, now, whole=whole)
        except BaseException:
            scratch += {path for state in now.values() for path in state.paths()} - base.paths()
            raise
        # A root that is left out of the graph is forgotten as a whole: what its source gave is not there any more.
        kept = {name: version for name, version in base.sources.items() if name in self._graph and name not in rebuilt}
        return Manifest(base.number + 1, base.document + 1, now, {**kept, **sources})

    def _received(self, name: str, update: External, scratch: list[str], *, sort: bool) -> Part:
        """A checked update of a root as instructions: in memory, or as a file where they are many."""
        typed, settings = self._typed(name), self._settings
        frames = (
            frame.with_columns((pl.col(CHANGE) == DELETE).alias(GONE))[typed.content.file_schema.names]
            for frame in checked(name, typed.rows, update, sort=sort)
        )
        first = [typed.content.empty]
        rows = 0
        for frame in frames:
            first.append(frame)
            rows += frame.height
            if rows > settings.small_rows:
                break
        else:
            return pl.concat(first)
        with RunWriter(self._storage, DATA, typed.content, settings.row_group_rows) as writer:
            scratch.append(writer.path)
            for frame in chain(first, frames):
                writer.write(frame)
        return writer.run(0)

    def _check_declared(self, manifest: Manifest, rebuilt: AbstractSet[str] = frozenset()) -> None:
        for name, state in manifest.stages.items():
            typed = self._graph.get(name)
            if typed is not None and name not in rebuilt and typed.fingerprint != state.fingerprint:
                raise StageChangedError(
                    f"stage {name!r} is declared otherwise than when its state in {self._storage.uri()} was built; "
                    f"`rebuild({name!r})` builds it, and what it feeds, anew"
                )

    def _typed(self, name: str) -> Typed:
        if name not in self._graph:
            raise GraphError(f"there is no stage {name!r}; there are: {', '.join(self._graph)}")
        return self._graph[name]

    def _clean(self, scratch: Sequence[str]) -> None:
        """Remove what tasks wrote for each other. What a killed process leaves, `expire` removes."""
        self._storage.delete(list(scratch))
