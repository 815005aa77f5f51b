"""The export targets of the module `folder_target`, and a Hive metastore.

The targets are registered as if by a package.

An export writes the statistics of a version to a target, such as a catalog.

A version is the published statistics of a table at one snapshot.
"""

from collections.abc import Iterator

import pytest

from metastore_assets.exports.configured_targets import load_target
from metastore_assets.plugins import EXPORT_TARGETS
from tests.assets.conftest import lab  # noqa: F401 (a fixture)

MODULE = "tests.exports.folder_target"


@pytest.fixture(autouse=True)
def targets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the test targets `folder` and `sketching`."""
    test_targets = {"folder": f"{MODULE}:FolderTarget", "sketching": f"{MODULE}:SketchingTarget"}
    monkeypatch.setattr(EXPORT_TARGETS, "built_in", {**EXPORT_TARGETS.built_in, **test_targets})
    load_target.cache_clear()
    yield
    load_target.cache_clear()


@pytest.fixture(scope="session")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive metastore."""
    from tests.formats.catalogs.hive_server import hive_metastore  # imports PySpark

    with hive_metastore(tmp_path_factory.mktemp("hms")) as uri:
        yield uri


@pytest.fixture
def hive_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive metastore that no other test uses."""
    from tests.formats.catalogs.hive_server import hive_metastore

    with hive_metastore(tmp_path_factory.mktemp("hms")) as uri:
        yield uri
