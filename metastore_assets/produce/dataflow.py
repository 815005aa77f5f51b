"""Dataflows: graphs of roots and stages.

A step applies updates of the roots to all stages, and results in a new state of the dataflow.

A node is a root or a stage. A root receives rows from an external source. A stage computes its rows from the rows of
other nodes, which feed it. Rows are stored in sorted files, called runs, which a compaction merges. A state names all
files. It becomes visible to readers when the caller or the dataflow publishes it. A sum stage has totals by key. A
delta root passes added and removed rows on to sum stages, and does not store them. A version is a published state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import timedelta
from typing import TypeAlias

from metastore_assets.errors import GraphError, StoreError, UpdateError, VersionConflictError
from metastore_assets.produce.complete_load import Loader
from metastore_assets.produce.dataset import DatasetState
from metastore_assets.produce.environment import Environment, Settings
from metastore_assets.produce.flow_step import StepInput, compact_state, fed_by, receive_update, step_flow
from metastore_assets.produce.graph import TypedNode, typed_graph
from metastore_assets.produce.manifest import DATA, FlowManifest, Manifests
from metastore_assets.produce.parts import Part
from metastore_assets.produce.runs import Run
from metastore_assets.produce.stages import Delta, DeltaRoot, Node, Root
from metastore_assets.produce.state import FlowState
from metastore_assets.produce.updates import External
from metastore_assets.produce.view import View
from metastore_assets.store.expire import ExpiryCounts
from metastore_assets.store.objects import ObjectStore
from metastore_assets.tasks.runner import InProcessRunner, TaskRunner

_ATTEMPTS = 20
"""Maximum number of attempts to publish a version, because another publisher may be first."""

Update: TypeAlias = "External | Sequence[Delta]"
"""The input of a root: changes by key for a Root, added and removed rows for a DeltaRoot."""


class Dataflow:
    """A graph of roots and stages over one storage.

    `step`, `load`, `rebuild_state` and `compact_state` return a new state and only add files. The caller publishes the
    state, or deletes its files with `discard`.

    `advance`, `rebuild`, `compact`, `version` and `expire` manage versions in the dataflow's own storage, also if
    several processes publish at the same time.
    """

    def __init__(
        self,
        storage: ObjectStore,
        nodes: Sequence[Node] | Mapping[str, TypedNode],
        *,
        runner: TaskRunner | None = None,
        settings: Settings | None = None,
        folder: str = DATA,
    ) -> None:
        """Create a dataflow.

        Raises GraphError for an invalid declaration.

        Args:
            storage: Where the files are stored.
            nodes: The declared roots and stages, or the result of `typed_graph`.
            runner: Runs the tasks; by default they run in this process.
            settings: Sizes that decide how work is divided, and whether Produce functions are checked. None for the
                defaults.
            folder: Folder for all files, used by this dataflow only. States name files relative to `storage`.
        """
        self._storage = storage
        self._graph = nodes if isinstance(nodes, Mapping) else typed_graph(nodes)
        self._manifests = Manifests(storage, folder)
        self._runner = runner or InProcessRunner()
        self._settings = settings or Settings()
        self._folder = folder

    @property
    def names(self) -> frozenset[str]:
        """Names of all declared roots and stages."""
        return frozenset(self._graph)

    def step(
        self,
        state: FlowState,
        updates: Mapping[str, Update],
        versions: Mapping[str, int] | None = None,
        *,
        sort: bool = False,
    ) -> FlowState:
        """Return the state after the updates of roots have passed through all stages.

        Nothing is published.

        The new rows are written to new files. After an error, the files of completed stages are deleted. Files of the
        stage that failed may remain.

        Args:
            state: The state to start from; `FlowState()` is the empty one.
            updates: The update of each root, by name.
            versions: The version of each root's source after the update, by name of the root. Updates that were applied
                before are skipped. If nothing remains, the result is `state` itself.
            sort: Whether to sort updates first. Otherwise they must be sorted by key.

        Raises:
            GraphError: A name in `updates` or `versions` is not that of a root.
            UpdateError: An update is invalid.
            ProduceError: A Produce function failed.
            CorruptionError: A stored file is damaged, or an unsigned total would become negative.
            StageChangedError: A stage must be rebuilt, because its declaration has changed.
        """
        env = self._environment()
        try:
            step_input = self._step_input(env, updates, versions or {}, state.sources, sort=sort)
            new_input = step_input.newer_than(state.sources)
            if (updates or versions) and new_input.is_empty:
                return state
            return step_flow(env, self._graph, state, new_input, set())
        finally:
            self._clean_up(env)

    def load(
        self,
        state: FlowState,
        content: Mapping[str, External | Sequence[Run]],
        versions: Mapping[str, int] | None = None,
    ) -> FlowState:
        """Return the state in which some roots and sum stages have the given content.

        Nothing is published.

        Stages that these nodes feed are rebuilt unless they are loaded, too. A loaded sum stage must have the totals
        that it would compute from the nodes that feed it, because later steps add only changes. This is not checked.

        Args:
            state: The state to start from.
            content: The content of each node, by name: rows in key order (key and value columns; a sum stage has one
                row per key), or runs that `loader` wrote, in key order.
            versions: {name of a root: version of its source that the content was read from}.

        Raises:
            UpdateError: The content is invalid, for example not in key order.
            GraphError: A node cannot be loaded, or does not exist.
            StageChangedError: A stage that is neither loaded nor rebuilt has another declaration than in `state`. Or a
                stage would have to be rebuilt from a delta root, whose rows are not stored.
        """
        env = self._environment()
        self._check_roots(set(versions or {}))
        try:
            loaded_states = {name: self._load_content(env, name, rows) for name, rows in content.items()}
            rebuilt = fed_by(self._graph, loaded_states.keys()) - loaded_states.keys()
            return step_flow(
                env, self._graph, state, StepInput(sources=dict(versions or {}), loaded=loaded_states), rebuilt
            )
        except BaseException:
            env.scratch.extend(env.written)
            raise
        finally:
            self._clean_up(env)

    def loader(self, stage: str) -> Loader:
        """Return a writer of runs for a root or a sum stage.

        Pass the written runs to `load` as its content.

        The writer can be pickled, so that tasks can write in other processes.
        """
        return Loader.of(self._typed(stage), self._storage, self._folder, self._settings)

    def rebuild_state(self, state: FlowState, *names: str) -> FlowState:
        """Return the state after rebuilding nodes and all stages that they feed.

        A rebuilt root is empty. Raises StageChangedError if a stage would have to be rebuilt from a delta root that is
        not in `names`, because its rows are not stored.
        """
        env = self._environment()
        try:
            return self._rebuild(env, state, names)
        finally:
            self._clean_up(env)

    def compact_state(self, state: FlowState, *, full: bool = False) -> FlowState:
        """Execute all due merges of runs.

        Return the resulting state, which has the same content.

        The merged runs are written to new files. Nothing is published.

        Args:
            state: The state to compact.
            full: Whether to merge all runs of each key range into one.

        Raises:
            StageChangedError: The declaration of a root or stage differs from the one that is stored in `state`.
        """
        return compact_state(self._environment(), self._graph, state, full=full)

    def discard(self, state: FlowState, base: FlowState) -> None:
        """Delete the files of an unpublished state, except those of `base`.

        `base` is the state from which it was computed.
        """
        self._storage.delete(sorted(state.paths() - base.paths()))

    def view(self, state: FlowState) -> View:
        """Return a view of a state's content, and of the update that led to it."""
        return View(self._storage, self._graph, state)

    def version(self, number: int | None = None) -> View:
        """Return a view of a version, by default of the newest.

        Version 0 is empty.

        Raises VersionNotFoundError if the version has expired, or was never published.
        """
        manifest = self._manifests.latest() if number is None else self._manifests.read(number)
        return View(self._storage, self._graph, manifest.state, manifest)

    def advance(
        self,
        updates: Mapping[str, Update],
        versions: Mapping[str, int] | None = None,
        *,
        sort: bool = False,
    ) -> int:
        """Step from the newest version, publish the next one, and return its number.

        The arguments are those of `step`. If all given updates and source versions were applied before, nothing is
        published, and the result is the number of the newest version. A call without updates and versions publishes a
        version.
        """
        env = self._environment()
        try:
            latest = self._manifests.latest()
            step_input = self._step_input(env, updates, versions or {}, latest.state.sources, sort=sort)

            def plan(base: FlowState) -> FlowState | None:
                new_input = step_input.newer_than(base.sources)
                if (updates or versions) and new_input.is_empty:
                    return None
                return step_flow(env.new_attempt(), self._graph, base, new_input, set())

            return self._publish(plan, env.scratch)
        finally:
            self._clean_up(env)

    def rebuild(self, *names: str) -> int:
        """Rebuild nodes and all stages that they feed.

        Publish the next version, and return its number.

        A stage must be rebuilt after its declaration has changed. A rebuilt root is empty: pass all of its rows to
        `advance` again.
        """
        env = self._environment()
        try:
            return self._publish(lambda base: self._rebuild(env.new_attempt(), base, names), env.scratch)
        finally:
            self._clean_up(env)

    def compact(self, *, full: bool = False) -> bool:
        """Merge runs and publish the result.

        Return whether anything changed.

        With `full`, all runs of each key range are merged into one. Otherwise, only the merges that `Settings` asks for
        are run, for example when one level has `fan_in` runs.

        The version number and the content stay the same. If another process publishes first, nothing changes, and the
        result is False.

        Raises:
            StageChangedError: The declaration of a root or stage differs from the one in the newest version.
        """
        base = self._manifests.latest()
        state = self.compact_state(base.state, full=full)
        if state.paths() == base.state.paths():
            return False
        try:
            self._manifests.publish(FlowManifest(base.number, base.document + 1, state))
        except VersionConflictError:
            with suppress(StoreError):  # `expire` deletes what stays.
                self.discard(state, base.state)
            return False
        return True

    def expire(self, keep: int, grace: timedelta = timedelta(days=1)) -> ExpiryCounts:
        """Delete old versions, and files that no remaining version references.

        The newest `keep` versions stay, and those that were the newest at some time within `grace`. Files younger than
        `grace` stay, too. `grace` must be longer than the longest `advance`: until `advance` publishes a version, no
        version references the files that it has written. This is not checked.
        """
        return self._manifests.expire(keep, grace)

    def _publish(self, plan: Callable[[FlowState], FlowState | None], scratch: list[str]) -> int:
        """Publish the state that `plan` returns for the newest version.

        Return the number of the new version.

        If `plan` returns None, nothing is published, and the number of the newest version is returned. If another
        process publishes first, `plan` is called again with the state of that process. The paths of the files that were
        written in vain are added to `scratch`, for the caller to delete.

        Raises VersionConflictError if other processes publish first at each of `_ATTEMPTS` attempts.
        """
        for _ in range(_ATTEMPTS):
            base = self._manifests.latest()
            state = plan(base.state)
            if state is None:
                return base.number
            try:
                self._manifests.publish(FlowManifest(base.number + 1, base.document + 1, state))
            except VersionConflictError:
                scratch += state.paths() - base.state.paths()
                continue
            return base.number + 1
        raise VersionConflictError(
            f"{self._storage.uri()}: other processes published {_ATTEMPTS} versions before this one could; try again"
        )

    def _step_input(
        self,
        env: Environment,
        updates: Mapping[str, Update],
        versions: Mapping[str, int],
        applied_versions: Mapping[str, int],
        *,
        sort: bool,
    ) -> StepInput:
        """Return the validated input of a step.

        Updates that were applied before are left out.

        Args:
            env: The environment of the step.
            updates: The update of each root, by name.
            versions: {name of a root: version of its source after its update}. An update counts as applied before if
                this version is at most that in `applied_versions`. An update without a version is never left out.
            applied_versions: {name of a root: version of its source after the last applied update}.
            sort: Whether to sort the updates of each `Root` by key first. Otherwise they must be sorted. Deltas need no
                order.

        Raises:
            UpdateError: An update is invalid, for example not sorted.
            GraphError: A name in `updates` or `versions` is not that of a root.
        """
        self._check_roots({*updates, *versions})
        parts: dict[str, Part] = {}
        deltas: dict[str, tuple[Delta, ...]] = {}
        for name, update in updates.items():
            if name in versions and versions[name] <= applied_versions.get(name, versions[name] - 1):
                continue
            if isinstance(self._typed(name).node, DeltaRoot):
                deltas[name] = _deltas(name, update)
            else:
                parts[name] = receive_update(env, self._typed(name), update, sort=sort)
        return StepInput(parts, deltas, dict(versions))

    def _load_content(self, env: Environment, name: str, rows: External | Sequence[Run]) -> DatasetState:
        """Return the state of a root or sum stage whose content is `rows`.

        Runs, which a `loader` has written, become the content as they are. Rows are first written as runs, whose paths
        are added to `env.written`.
        """
        loader = self.loader(name)
        if not isinstance(rows, list | tuple) or not all(isinstance(run, Run) for run in rows):
            rows = loader.write(rows)
            env.written.extend(run.path for run in rows)
        return loader.state(rows)

    def _rebuild(self, env: Environment, base: FlowState, names: Sequence[str]) -> FlowState:
        rebuilt = fed_by(self._graph, {self._typed(name).name for name in names})
        return step_flow(env, self._graph, base, StepInput(), rebuilt)

    def _clean_up(self, env: Environment) -> None:
        """Delete temporary files.

        Errors are ignored, because the new version may already be published. `expire` deletes files that remain.
        """
        with suppress(StoreError):
            self._storage.delete(env.scratch)

    def _environment(self) -> Environment:
        return Environment(self._storage, self._folder, self._runner, self._settings, [])

    def _check_roots(self, names: AbstractSet[str]) -> None:
        for name in names:
            if not isinstance(self._typed(name).node, Root | DeltaRoot):
                raise GraphError(f"{name!r} is a stage: only roots have updates and source versions")

    def _typed(self, name: str) -> TypedNode:
        if name not in self._graph:
            raise GraphError(f"there is no stage {name!r}; there are: {', '.join(self._graph)}")
        return self._graph[name]


def _deltas(name: str, update: Update) -> tuple[Delta, ...]:
    if not isinstance(update, list | tuple) or not all(isinstance(delta, Delta) for delta in update):
        raise UpdateError(f"{name!r} is a DeltaRoot: its update is a list of `Delta`, each with added or removed rows")
    return tuple(update)
