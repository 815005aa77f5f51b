"""A graph of stages: steps from state to state; and, standing alone, versions of its own in its storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import TypeAlias

from metastore_assets.errors import GraphError, UpdateError, VersionConflictError
from metastore_assets.produce.dataset import State
from metastore_assets.produce.environment import Environment
from metastore_assets.produce.evolution import Given, fed_by, received, stepped, tidied
from metastore_assets.produce.graph import Typed, typed_graph
from metastore_assets.produce.loading import Loader
from metastore_assets.produce.manifest import DATA, Manifest, Manifests
from metastore_assets.produce.parts import Part
from metastore_assets.produce.runs import Run
from metastore_assets.produce.settings import Settings
from metastore_assets.produce.stages import Delta, DeltaRoot, Node, Root
from metastore_assets.produce.state import FlowState
from metastore_assets.produce.updates import External
from metastore_assets.produce.view import View
from metastore_assets.store.expire import Expired
from metastore_assets.store.objects import ObjectStore
from metastore_assets.tasks.runner import InProcessRunner, TaskRunner

_ATTEMPTS = 20
"""How often a version is planned anew because another publisher was first."""

Update: TypeAlias = "External | Sequence[Delta]"
"""Of a Root: what changed, by key. Of a DeltaRoot: what came and what went."""


class Dataflow:
    """Roots and stages over one storage.

    `step`, `load`, `rebuilt` and `compacted` are pure: they lead from a state to another, add files, and change none.
    Whoever calls them publishes the state, by naming it in a document of their own, or drops it (`discard`).

    `advance`, `rebuild`, `compact`, `version` and `expire` do so with versions that the dataflow keeps itself. Any
    number of processes may advance it at once: one of them wins each time.
    """

    def __init__(
        self,
        storage: ObjectStore,
        nodes: Sequence[Node] | Mapping[str, Typed],
        *,
        runner: TaskRunner | None = None,
        settings: Settings | None = None,
        check: bool = False,
        folder: str = DATA,
    ) -> None:
        """`nodes`: the declaration, or what `typed_graph` made of it, which serves any number of dataflows. Raises
        GraphError when the declaration cannot run.

        All files are written below `folder`, which is of this dataflow alone; states name them relative to `storage`.
        With `check`, every Produce function is called twice, and ProduceError is raised where it gives something else.
        """
        self._storage = storage
        self._graph = nodes if isinstance(nodes, Mapping) else typed_graph(nodes)
        self._manifests = Manifests(storage, folder)
        self._runner = runner or InProcessRunner()
        self._settings = settings or Settings()
        self._check = check
        self._folder = folder

    @property
    def names(self) -> frozenset[str]:
        """Of all roots and stages. A state may have others, of stages that were declared when it was made."""
        return frozenset(self._graph)

    def step(
        self,
        state: FlowState,
        updates: Mapping[str, Update],
        versions: Mapping[str, int] | None = None,
        *,
        sort: bool = False,
    ) -> FlowState:
        """The state after updates of roots went through all stages; `FlowState()` is the one before the first.

        `versions` says for a root which version of its source its update leads to: one that has been applied already
        is skipped, and when nothing is left to apply, the result is `state` itself. With `sort`, updates that are not
        sorted are. Raises UpdateError, ProduceError, CorruptionError or StageChangedError, and leaves nothing then.
        A process that is killed leaves files that no state names: whoever expires states removes them.
        """
        env = self._environment()
        try:
            given = self._given(env, updates, versions or {}, state.sources, sort=sort)
            fresh = given.beyond(state.sources)
            if (updates or versions) and fresh.is_nothing:
                return state
            return stepped(env, self._graph, state, fresh, set())
        finally:
            self._storage.delete(env.scratch)

    def load(
        self,
        state: FlowState,
        content: Mapping[str, External | Sequence[Run]],
        versions: Mapping[str, int] | None = None,
    ) -> FlowState:
        """The state in which some roots and sum stages hold what is given, whatever they held before.

        Rows (key and value columns) in key order, one per key of a sum; or runs that its `loader` wrote, in key order.
        What they feed and is not loaded too is built anew from them. All of these are reset (`View.is_reset`). Nobody
        checks that loaded stages agree with what feeds them: give what stepping would have led to.
        Raises UpdateError, GraphError or StageChangedError.
        """
        env = self._environment()
        self._check_roots(set(versions or {}))
        try:
            loaded = {name: self._loaded(env, name, rows) for name, rows in content.items()}
            rebuilt = fed_by(self._graph, loaded.keys()) - loaded.keys()
            return stepped(env, self._graph, state, Given(sources=dict(versions or {}), loaded=loaded), rebuilt)
        except BaseException:
            env.scratch.extend(env.written)
            raise
        finally:
            self._storage.delete(env.scratch)

    def loader(self, stage: str) -> Loader:
        """Writes runs of a root or a sum stage, in this process or in tasks of others, for `load`."""
        return Loader.of(self._typed(stage), self._storage, self._folder, self._settings)

    def rebuilt(self, state: FlowState, *names: str) -> FlowState:
        """The state with some stages, and all that they feed, built from nothing; roots are emptied. See `rebuild`."""
        env = self._environment()
        try:
            return self._rebuilt(env, state, names)
        finally:
            self._storage.delete(env.scratch)

    def compacted(self, state: FlowState, *, full: bool = False) -> FlowState:
        """A state that holds the same, with all merges that are due done, or with `full` one run per range of keys.

        The result equals `state` where there is nothing to do. Raises StageChangedError.
        """
        return tidied(self._environment(), self._graph, state, full=full)

    def discard(self, state: FlowState, base: FlowState) -> None:
        """Remove the files of a state that nobody will publish; those that `base`, where it began, names stay."""
        self._storage.delete(sorted(state.paths() - base.paths()))

    def view(self, state: FlowState) -> View:
        """What a state holds, and the update that led to it."""
        return View(self._storage, self._graph, state)

    def version(self, number: int | None = None) -> View:
        """A version, the newest when none is named; version 0 is empty. Raises VersionNotFoundError."""
        manifest = self._manifests.latest() if number is None else self._manifests.read(number)
        return View(self._storage, self._graph, manifest.state, manifest)

    def advance(
        self,
        updates: Mapping[str, Update],
        versions: Mapping[str, int] | None = None,
        *,
        sort: bool = False,
    ) -> int:
        """Take a step from the newest version, and publish the next one; its number.

        As `step`; when nothing is left to apply, no version is published. When it raises, the last version stands.
        """
        env = self._environment()
        try:
            latest = self._manifests.latest()
            given = self._given(env, updates, versions or {}, latest.state.sources, sort=sort)

            def plan(base: FlowState) -> FlowState | None:
                fresh = given.beyond(base.sources)
                if (updates or versions) and fresh.is_nothing:
                    return None
                return stepped(env.again(), self._graph, base, fresh, set())

            return self._publish(plan, env.scratch)
        finally:
            self._storage.delete(env.scratch)

    def rebuild(self, *names: str) -> int:
        """Build stages and all that they feed from nothing, and publish the next version; its number.

        Needed after a stage was declared otherwise. Their updates then add all there is (`View.is_reset`). A root is
        emptied: its source has to be given whole again.
        """
        env = self._environment()
        try:
            return self._publish(lambda base: self._rebuilt(env.again(), base, names), env.scratch)
        finally:
            self._storage.delete(env.scratch)

    def compact(self, *, full: bool = False) -> bool:
        """Merge all runs that are due, or with `full` every shard into one run; whether there was anything to do.

        Changes neither the version's number nor what it holds. Of two compactions, or one and a publisher, at once, one
        is without effect. Raises StageChangedError.
        """
        base = self._manifests.latest()
        state = self.compacted(base.state, full=full)
        if state.paths() == base.state.paths():
            return False
        try:
            self._manifests.publish(Manifest(base.number, base.document + 1, state))
        except VersionConflictError:
            self.discard(state, base.state)
            return False
        return True

    def expire(self, keep: int, grace: timedelta = timedelta(days=1)) -> Expired:
        """Remove all but the newest versions, and files that none names and that are older than `grace`.

        `grace` has to be longer than the longest `advance`, so that nothing of a running one is removed.
        """
        return self._manifests.expire(keep, grace)

    def _publish(self, plan: Callable[[FlowState], FlowState | None], scratch: list[str]) -> int:
        for _ in range(_ATTEMPTS):
            base = self._manifests.latest()
            state = plan(base.state)
            if state is None:
                return base.number
            try:
                self._manifests.publish(Manifest(base.number + 1, base.document + 1, state))
            except VersionConflictError:
                scratch += state.paths() - base.state.paths()
                continue
            return base.number + 1
        raise VersionConflictError(
            f"{self._storage.uri()}: other processes published {_ATTEMPTS} versions while this one was made; try again"
        )

    def _given(
        self,
        env: Environment,
        updates: Mapping[str, Update],
        versions: Mapping[str, int],
        applied: Mapping[str, int],
        *,
        sort: bool,
    ) -> Given:
        """What is given, checked, as far as it has not been applied."""
        self._check_roots({*updates, *versions})
        parts: dict[str, Part] = {}
        deltas: dict[str, tuple[Delta, ...]] = {}
        for name, update in updates.items():
            if name in versions and versions[name] <= applied.get(name, versions[name] - 1):
                continue
            if isinstance(self._typed(name).node, DeltaRoot):
                deltas[name] = _deltas(name, update)
            else:
                parts[name] = received(env, self._typed(name), update, sort=sort)
        return Given(parts, deltas, dict(versions))

    def _loaded(self, env: Environment, name: str, rows: External | Sequence[Run]) -> State:
        """Content that is given, as runs."""
        loader = self.loader(name)
        if not isinstance(rows, list | tuple) or not all(isinstance(run, Run) for run in rows):
            rows = loader.write(rows)
            env.written.extend(run.path for run in rows)
        return loader.state(rows)

    def _rebuilt(self, env: Environment, base: FlowState, names: Sequence[str]) -> FlowState:
        wanted = fed_by(self._graph, {self._typed(name).name for name in names})
        return stepped(env, self._graph, base, Given(), wanted)

    def _environment(self) -> Environment:
        return Environment(self._storage, self._folder, self._runner, self._settings, self._check, [])

    def _check_roots(self, names: AbstractSet[str]) -> None:
        for name in names:
            if not isinstance(self._typed(name).node, Root | DeltaRoot):
                raise GraphError(f"{name!r} is a stage; updates, and versions of sources, are of roots")

    def _typed(self, name: str) -> Typed:
        if name not in self._graph:
            raise GraphError(f"there is no stage {name!r}; there are: {', '.join(self._graph)}")
        return self._graph[name]


def _deltas(name: str, update: Update) -> tuple[Delta, ...]:
    if not isinstance(update, list | tuple) or not all(isinstance(delta, Delta) for delta in update):
        raise UpdateError(
            f"{name!r} is a root of deltas: its update is a list of `Delta`, which say what came and what went"
        )
    return tuple(update)
