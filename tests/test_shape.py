"""Limits for the package and its tests.

The package has few long parameter lists, repeated class names and very short modules. Tests rarely quote messages.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow


@cache
def texts() -> dict[Path, str]:
    """Return the text of each module of the package, by its path."""
    paths = sorted((REPOSITORY / "metastore_assets").rglob("*.py"))
    return {path: path.read_text(encoding="utf-8") for path in paths}


def test_few_parameter_lists_are_long_and_few_class_names_repeated() -> None:
    """At most 20 functions have six or more parameters, and at most two class names are repeated."""
    functions, class_names = list[str](), Counter[str]()
    for path, text in texts().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                if sum(parameter.arg not in ("self", "cls") for parameter in parameters) >= 6:
                    functions.append(f"{path.relative_to(REPOSITORY)}:{node.lineno}")
            elif isinstance(node, ast.ClassDef):
                class_names[node.name] += 1
    assert len(functions) <= 20, functions
    repeated_names = [name for name, count in class_names.items() if count > 1]
    assert len(repeated_names) <= 2, repeated_names


def test_few_modules_are_short() -> None:
    """At most 22 modules have fewer than 60 lines."""
    short_modules = [
        str(path.relative_to(REPOSITORY))
        for path, text in texts().items()
        if path.name != "__init__.py" and text.count("\n") < 60
    ]
    assert len(short_modules) <= 22, short_modules


def test_few_tests_of_errors_have_sentences() -> None:
    """At most ten patterns of messages in tests have three ordinary words in a row.

    The other patterns contain only values and keys, so that a message can be reworded.
    """
    pattern = re.compile(r"""match=[rf]*"[^"\n]*\b[a-z]+ [a-z]+ [a-z]+\b""")
    paths = sorted((REPOSITORY / "tests").rglob("*.py"))
    sentences = [match for path in paths for match in pattern.findall(path.read_text(encoding="utf-8"))]
    assert len(sentences) <= 10, sentences
