"""Generated tables in pages written by hand: packages, columns of `statistics`, and limits."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from scripts.reference.source_texts import read_texts

_REPOSITORY = Path(__file__).parents[2]
_BEGIN, _END = "<!-- written by make reference -->", "<!-- end -->"


def render_page(page: Path, table: list[str]) -> str:
    """Return the text of a page, with a table between the comments `_BEGIN` and `_END`."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    return "\n".join([before + begin, "", *table, "", end + after])


def render_packages() -> list[str]:
    """Return the table of packages and single modules, in import-linter's layers from top to bottom."""
    rows = [f"| `{name}` | {_package_text(name)} |" for layer in _layers() for name in layer]
    return ["| package | content |", "|---|---|", *rows]


def _layers() -> Iterator[list[str]]:
    contracts = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    for layer in contracts[0]["layers"]:
        yield [name for name in re.findall(r"\w+", layer) if name != "__main__"]


def _package_text(name: str) -> str:
    """Return the first paragraph of the docstring of a package or module."""
    path = _REPOSITORY / "metastore_assets" / name
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text, f"{path} has no docstring"
    return " ".join(text.partition("\n\n")[0].split())


def render_statistics() -> list[str]:
    """Return the table of all columns of the file `statistics`."""
    from metastore_assets.statistics.column import STATISTICS, ColumnStatistics

    (definition,) = ast.parse(inspect.getsource(ColumnStatistics)).body
    assert isinstance(definition, ast.ClassDef)
    texts = read_texts(definition.body)
    return ["| column | content |", "|---|---|", *(f"| `{name}` | {texts[name]} |" for name in STATISTICS)]


def render_limits() -> list[str]:
    """Return the table of all limits of `metastore_assets.storage.limits`."""
    from metastore_assets.storage import limits

    texts = read_texts(ast.parse(inspect.getsource(limits)).body)
    rows = [(name, value) for name, value in vars(limits).items() if name.isupper()]
    cells = [f"| `{name}` | {_format_limit(name, value)} | {texts[name]} |" for name, value in rows]
    return ["| limit | value | meaning |", "|---|---|---|", *cells]


def _format_limit(name: str, number: int) -> str:
    if not name.endswith("_BYTES") and name != "XZ_MEMORY":
        return f"{number:,}"
    return f"{number >> 30} GiB" if number >= 1 << 30 else f"{number >> 20} MiB"
