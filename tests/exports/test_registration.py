"""The built-in export targets are registered twice: in the code, and as entry points for other tools."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from metastore_assets.exports.base import ExportTarget
from metastore_assets.exports.configured_targets import load_target
from metastore_assets.plugins import EXPORT_TARGETS

_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
_BUILT_IN = tomllib.loads(_PYPROJECT.read_text())["project"]["entry-points"][EXPORT_TARGETS.group]


def test_built_in_targets_are_entry_points() -> None:
    assert _BUILT_IN.items() <= EXPORT_TARGETS.built_in.items()  # tests register more
    assert {"glue", "hive", "spark"} <= set(_BUILT_IN)


@pytest.mark.parametrize("kind", _BUILT_IN)
def test_a_target_has_the_name_under_which_it_is_registered(kind: str) -> None:
    target = load_target(kind)
    assert issubclass(target, ExportTarget)
    assert target.kind == kind
