"""Docstrings begin with a summary: one sentence below 100 characters, then an empty line."""

import ast
import re

import pytest

from tests.conftest import REPOSITORY

_LENGTH = 100
_SECOND_SENTENCE = re.compile(r"""(?<!e\.g)(?<!i\.e)[.!?][)"'`]? (?=[A-Z])""")
"""The end of a sentence that another one follows; code in backticks is removed before."""
_FOLDERS = ("metastore_assets", "sensors", "resources", "tests", "benchmarks", "scripts", "examples")


def summary_problem(docstring: str) -> str | None:
    """Return what is wrong with the first lines of a docstring, or None."""
    summary, *rest = docstring.splitlines()
    if len(summary) >= _LENGTH:
        return f"{len(summary)} characters"
    if rest and rest[0].strip():
        return "no empty line below the first one"
    if _SECOND_SENTENCE.search(re.sub(r"`[^`]*`", "``", summary)):
        return "two sentences"
    return None


@pytest.mark.slow
def test_a_docstring_begins_with_one_short_sentence() -> None:
    documented_types = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    paths = [path for folder in _FOLDERS for path in sorted((REPOSITORY / folder).rglob("*.py"))]
    assert len(paths) > 1000
    problems = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            docstring = ast.get_docstring(node) if isinstance(node, documented_types) else None
            if docstring and (problem := summary_problem(docstring)):
                problems.append(f"{path.relative_to(REPOSITORY)}:{getattr(node, 'lineno', 1)}: {problem}")
    assert not problems


def test_the_problems_are_found() -> None:
    assert summary_problem("Return it. It may be empty.") == "two sentences"
    assert summary_problem("Return\nit.") == "no empty line below the first one"
    assert summary_problem("x" * 100) == "100 characters"
    assert summary_problem("Return `a. B` of `c`.\n\nIt may be empty. Or not.") is None
