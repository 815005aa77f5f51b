"""The resources are thin: they read the configuration, start late, and stop what they started."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dagster import build_init_resource_context

from metastore_assets.errors import ConfigError
from metastore_assets.resources.object_store import ObjectStoreResource
from metastore_assets.resources.spark import SparkResource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]
PROGRAM = """
import sys
from dagster import build_init_resource_context
from pyspark.sql import SparkSession
from metastore_assets.resources.spark import SparkResource

spark = SparkResource(config_file=sys.argv[1])
assert SparkSession.getActiveSession() is None, "started before it was asked for"
session = spark.session()
assert session.sparkContext.appName == "from the file"
assert spark.session() is session
spark.teardown_after_execution(build_init_resource_context())
assert session.sparkContext._jsc is None, "not stopped"
"""


def write(folder: Path) -> str:
    path = folder / "metastore.yaml"
    path.write_text(
        'root: ./root\nspark: {spark.master: "local[1]", spark.app.name: from the file}\n', encoding="utf-8"
    )
    return str(path)


@pytest.mark.spark
def test_a_session_starts_when_asked_for_and_stops_with_the_run(tmp_path: Path) -> None:
    """In a process of its own: there can be one session per process."""
    command = [sys.executable, "-c", PROGRAM, write(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
def test_a_session_that_runs_already_is_used_and_left_alone(tmp_path: Path, spark: "SparkSession") -> None:
    resource = SparkResource(config_file=write(tmp_path))
    assert resource.session() is spark
    resource.teardown_after_execution(build_init_resource_context())
    assert spark.range(3).count() == 3


def test_the_object_store_is_the_configured_root(tmp_path: Path) -> None:
    store = ObjectStoreResource(config_file=write(tmp_path))
    assert store.root().uri() == str(tmp_path / "root")
    assert store.versions("t").latest() is None


def test_nothing_is_read_before_it_is_needed(tmp_path: Path) -> None:
    """A code location must load even where only its runs can reach the configuration's targets."""
    resource = SparkResource(config_file=str(tmp_path / "missing.yaml"))
    with pytest.raises(ConfigError, match="no configuration at"):
        ObjectStoreResource(config_file=resource.config_file).root()
