"""Tables with randomly mutated files give rows, or errors that name a file.

A target is a kind of file of one table. It is sealed if no mutation can change the rows. Deletion vectors are sealed by
a checksum, for example. A mutated file of a sealed target must give the rows of the original table, or an error. Any
other mutated file may be valid with another content, so it may give other rows.

A failure names the target and the seed: `mutated(data, seed)` repeats the mutation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from metastore_assets.config import TableConfig
from tests.robustness.fuzz import Outcome, Reader, changed, mutated
from tests.robustness.fuzz_tables import TARGETS, built

_FEW = 2
_MANY = 400
_PROFILED = 4
"""In tests with the mark `long`, one in four tables is also profiled, which takes most of the time."""

Tables = Callable[[str], tuple[TableConfig, Outcome]]


@pytest.fixture(scope="module")
def tables(reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A function that returns a table by name, together with the result of reading it unmutated."""
    folder = tmp_path_factory.mktemp("fuzz")
    built_tables: dict[str, tuple[TableConfig, Outcome]] = {}

    def table(name: str) -> tuple[TableConfig, Outcome]:
        if name not in built_tables:
            config = built(folder / name.replace(" ", "_"), name)
            truth = reader.read(config)
            assert truth.rows is not None, truth
            built_tables[name] = config, truth
        return built_tables[name]

    return table


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutated_file_gives_the_rows_or_an_error(tables: Tables, reader: Reader, name: str) -> None:
    """A table with a mutated file gives rows, or an error that names a file.

    Two mutations of files of the target `name` are tried. The table is read, but not profiled.
    """
    _check(tables, reader, name, range(_FEW), profile_interval=0)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_many_mutations_of_a_file_give_the_rows_or_an_error(tables: Tables, reader: Reader, name: str) -> None:
    _check(tables, reader, name, range(_FEW, _FEW + _MANY), profile_interval=_PROFILED)


def _check(tables: Tables, reader: Reader, name: str, seeds: range, profile_interval: int) -> None:
    """For each seed, change a random file of the target `name` and read the table.

    Assert that no outcome is wrong. For a sealed target, an outcome with other rows than before the mutation is wrong.

    With `profile_interval` of n > 0, the table is also profiled for every n-th seed.
    """
    target = TARGETS[name]
    config, truth = tables(target.table)
    folder = Path(config.uri)
    files = sorted(folder.glob(target.files))
    assert files, target
    wrong = []
    for seed in seeds:
        path = random.Random(seed).choice(files)
        mutations: list[str] = []

        def change(data: bytes, seed: int = seed, mutations: list[str] = mutations) -> bytes:
            content, mistake = mutated(data, seed)
            mutations.append(mistake)
            return content

        with changed(path, change):
            outcome = reader.read(config, profile=bool(profile_interval) and seed % profile_interval == 0)
        fault = outcome.wrong(folder, is_frugal=target.is_frugal)
        if fault is None and target.sealed and outcome.rows not in (None, truth.rows):
            fault = "other rows than before"
        if fault is not None:
            wrong.append(f"{name}, seed {seed}, {path.name} {mutations[0]}: {fault}")
    assert not wrong, "\n".join(wrong)
