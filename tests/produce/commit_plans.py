"""A random graph with all its updates drawn in advance.

So several processes can publish the same updates. A root is an input of a graph. The oracle computes the expected
results in plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metastore_assets.errors import VersionConflictError
from metastore_assets.produce import Dataflow
from metastore_assets.store.objects import ObjectStore
from tests.produce import oracle
from tests.produce.graph_model import RootNode, changes_table
from tests.produce.harness import Pair
from tests.produce.oracle import State, Step
from tests.produce.random_graphs import Case, Edits, empty_sources, random_case, random_edits, random_rows


@dataclass(frozen=True)
class Commit:
    """One update of each root, in two forms: as Python values and as Arrow tables.

    `edits` are for the oracle, and `tables` for the package. `number` counts commits from 1. It is also the version of
    every root.
    """

    number: int
    edits: Edits
    tables: dict[str, pa.Table]

    @property
    def versions(self) -> dict[str, int]:
        return dict.fromkeys(self.tables, self.number)


@dataclass
class Plan:
    """Commits for the random graph of `case`, and the states of the oracle before and after each of them.

    `states[0]` is empty. `commits[n]` leads from `states[n]` to `states[n + 1]`, and `steps[n]` is what the oracle
    expects of this commit.
    """

    case: Case
    commits: list[Commit]
    states: list[State]
    steps: list[Step]

    def publish(self, store: ObjectStore, commit: Commit) -> int:
        """Publish a commit, and return the number of the newest version.

        Nothing is published if the storage has the commit already. If another publisher was first, the method tries
        again.
        """
        while True:
            try:
                flow = Dataflow(store, self.case.graph.declaration(), settings=self.case.settings)
                return flow.advance(dict(commit.tables), versions=commit.versions)
            except VersionConflictError:
                continue

    def pair(self, store: ObjectStore, commits: int) -> Pair:
        """Return a `Pair` of a storage that has the first `commits` commits, and its oracle."""
        pair = Pair(store, self.case.graph, settings=self.case.settings)
        pair.number, pair.state = commits, self.states[commits]
        pair.previous = self.states[max(0, commits - 1)]
        for commit in self.commits[:commits]:
            pair.sources = oracle.applied(pair.sources, commit.edits)
        return pair


def plan(seed: int, commits: int) -> Plan:
    """Draw a plan of `commits` commits.

    Each commit has an update of every root. The update of a root may have no rows.
    """
    case = random_case(seed)
    nodes = case.graph.oracle()
    sources = empty_sources(case)
    result = Plan(case, [], [oracle.evaluate(nodes, sources)], [])
    roots = [node for node in case.graph.nodes if isinstance(node, RootNode)]
    for number in range(1, commits + 1):
        root_edits = random_edits(case)
        edits = {root.name: root_edits.get(root.name, {}) for root in roots}
        tables: dict[str, Any] = {
            root.name: changes_table(root.key, root.value, random_rows(case, root.name, edits[root.name]))
            for root in roots
        }
        sources = oracle.applied(sources, edits)
        state = oracle.evaluate(nodes, sources, result.states[-1])
        result.steps.append(oracle.advance(nodes, result.states[-1], state, edits))
        result.states.append(state)
        result.commits.append(Commit(number, edits, tables))
    return result
