"""Texts below assignments in Python source, which say what a field or a constant means."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise


def read_texts(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the text below each assignment in the body of a class or module, by the assigned name.

    Each text is on one line.
    """
    texts: dict[str, str] = {}
    for statement, after in pairwise(body):
        match statement, after:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(ast.Constant(str(text))),
            ):
                texts[name] = " ".join(text.split())
    return texts
