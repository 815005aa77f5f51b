"""Each mutant (a deliberate defect) of `make mutants` can still be applied to the current code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.mutants.mutants import MUTANTS, Mutant, SnippetNotFoundError

PACKAGE = Path(__file__).parents[2] / "metastore_assets"


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_mutant_applies_once(mutant: Mutant, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE / "produce", tmp_path / "produce", ignore=shutil.ignore_patterns("__pycache__"))
    mutant.apply(tmp_path)
    mutated_source = (tmp_path / "produce" / f"{mutant.module}.py").read_text()
    compile(mutated_source, mutant.module, "exec")
    assert mutated_source != (PACKAGE / "produce" / f"{mutant.module}.py").read_text()


def test_a_mutant_of_removed_code_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "produce").mkdir()
    (tmp_path / "produce" / "order.py").write_text("nothing of it\n")
    with pytest.raises(SnippetNotFoundError, match=r"order\.py.*\b0\b"):
        Mutant("name", "order", "something", "else").apply(tmp_path)
