"""The targets of the module `folder_target`, as if a package had registered them."""

from collections.abc import Iterator

import pytest

from metastore_assets.exports.entries import load_target
from metastore_assets.plugins import EXPORT_TARGETS
from tests.assets.conftest import lab  # noqa: F401 (a fixture)

MODULE = "tests.exports.folder_target"


@pytest.fixture(autouse=True)
def targets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`folder` and `sketching` are kinds of targets."""
    added = {"folder": f"{MODULE}:FolderTarget", "sketching": f"{MODULE}:SketchingTarget"}
    monkeypatch.setattr(EXPORT_TARGETS, "built_in", {**EXPORT_TARGETS.built_in, **added})
    load_target.cache_clear()
    yield
    load_target.cache_clear()
