"""The property: every version of a random graph has the content, mappings and updates of the oracle.

The oracle evaluates the graph from scratch. It only retains surrogate keys and founders, which are values of the first
row of a key. The mappings of a stage are pairs of a source key and a target key that has rows from it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_assets.store.objects import ObjectStore
from tests.produce import oracle
from tests.produce.harness import Pair
from tests.produce.random_graphs import Case, random_case, random_edits, random_rows, shuffled

VERSIONS = 12
DEFAULT_SEEDS = range(3)
LONG_SEEDS = (*range(50), *range(100, 2_100))
BLOCK = 5


def run(case: Case, folder: Path, versions: int = VERSIONS) -> None:
    """Publish random versions and check each.

    Compact, expire and reopen the storage at random.
    """
    pair = Pair(ObjectStore(str(folder)), case.graph, settings=case.settings)
    random = case.random
    for _ in range(versions):
        edits = random_edits(case)
        tables, options = {}, {}
        for root, root_edits in edits.items():
            rows = random_rows(case, root, root_edits)
            if random.random() < 0.2:
                options["sort"] = True
                rows = shuffled(case, rows)
            table = pair.table(root, rows)
            tables[root] = table if random.random() < 0.8 else iter(table.to_batches(max_chunksize=2))
        pair.publish(tables, edits, **options)
        if random.random() < 0.2:
            pair.compact(full=random.random() < 0.3)
        if random.random() < 0.3:
            pair.reopen()
        if random.random() < 0.1:
            pair.expire(keep=random.randint(1, 3))
        _look_up(case, pair)


def _look_up(case: Case, pair: Pair) -> None:
    """Assert that a lookup returns the rows of some live keys, and none of removed ones."""
    node = case.random.choice(case.graph.nodes)
    live = list(pair.state.groups[node.name])
    removed_keys = [key for key in pair.previous.groups[node.name] if key not in pair.state.groups[node.name]]
    keys = case.random.sample(live, min(2, len(live))) + removed_keys[:1]
    keys = oracle.ordered(keys, [name in case.graph.rows(node.name)[2] for name in case.graph.rows(node.name)[0].names])
    assert pair.plain_version().groups(node.name, keys) == {
        key: pair.state.groups[node.name][key] for key in keys if key in live
    }


def check(seed: int, folder: Path, versions: int = VERSIONS) -> None:
    """Check one random graph.

    A failure prints the seed and the graph.
    """
    case = random_case(seed)
    try:
        run(case, folder / str(seed), versions)
    except BaseException as error:
        error.add_note(f"tests.produce.test_property.check({seed}, folder)\n{case!r}")
        raise


@pytest.mark.parametrize("seed", DEFAULT_SEEDS)
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("first", LONG_SEEDS[::BLOCK])
def test_many_random_graphs(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + BLOCK):
        check(seed, tmp_path)
