"""The public names of `metastore_assets` as Markdown: a section for each kind, with docstrings."""

from __future__ import annotations

import inspect
from typing import Any

import metastore_assets
from metastore_assets.errors import MetastoreError

_FIRST = ("open_table", "Metastore", "Table", "Relation", "FilteredView", "profile", "profile_query")
_INTRODUCTION = """# Python API

The public names of `metastore_assets`: `from metastore_assets import open_table, ResultSet`. A name is imported on
first use, so `import metastore_assets` is fast. Options are keyword-only. An option has the same name and form in every
method, and in the command line:

| option | value |
|---|---|
| `partition=` | a key, or a pattern such as `"day=2024-01-*"`: see [partitions](output.md#partitions) |
| `where=` | a predicate in SQL or a pyarrow expression: see [predicates](predicates.md) |
| `version=` | a number, a snapshot or a time: see [versions](output.md#versions) |
"""
_SECTIONS = ("Read", "Results", "Errors", "Configure", "Dagster", "Custom statistics")
_PREFIXES = {
    "metastore_assets.assets.": "Dagster",
    "metastore_assets.checks.": "Configure",
    "metastore_assets.config": "Configure",
    "metastore_assets.statistics.user_defined.interface": "Custom statistics",
}
"""The section of the names of a module, by the beginning of the module's name. All other names are in `Results`."""


def render_public_names() -> str:
    """Return an introduction and all sections, in which each name has a directive of mkdocstrings."""
    sections: dict[str, list[str]] = {section: [] for section in _SECTIONS}
    names = [name for name in metastore_assets.__all__ if name != "__version__"]
    for name in sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST)):
        value = getattr(metastore_assets, name)
        sections[_section(name, value)].append(_directive(name, value))
    parts = [f"## {section}\n\n" + "\n\n".join(directives) for section, directives in sections.items()]
    return "\n\n".join([_INTRODUCTION.rstrip(), *parts]) + "\n"


def _section(name: str, value: Any) -> str:
    if name in _FIRST:
        return "Read"
    if inspect.isclass(value) and issubclass(value, MetastoreError):
        return "Errors"
    module = _module(name, value)
    return next((section for prefix, section in _PREFIXES.items() if module.startswith(prefix)), "Results")


def _module(name: str, value: Any) -> str:
    """Return the module that defines a name.

    A type alias has no `__module__`, so its module is looked up by name.
    """
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__module__
    return f"metastore_assets.{metastore_assets.defining_module(name)}"


def _directive(name: str, value: Any) -> str:
    defined_name = value.__name__ if inspect.isclass(value) or inspect.isfunction(value) else name
    note = "" if defined_name == name else f"\n\n`{name}` is the public name of this function."
    return f"::: {_module(name, value)}.{defined_name}{note}"
