"""The wheel in somebody else's project: one that has packages named `resources` and `sensors` itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

_SOURCES = ("metastore_assets", "resources", "sensors", "pyproject.toml", "README.md", "LICENSE")


def _run(*command: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from a copy of its sources."""
    folder = tmp_path_factory.mktemp("sources")
    for name in _SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    arguments = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", "wheels", ".")
    _run("-m", "pip", "--disable-pip-version-check", "wheel", *arguments, folder=folder)
    (built,) = (folder / "wheels").glob("*.whl")
    return built


def test_nothing_lies_outside_of_the_package(wheel: Path) -> None:
    """The real code of `resources/` and `sensors/` is in the wheel, as part of the package."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert {name.partition("/")[0] for name in names} == {"metastore_assets"}
    for folder in ("resources", "sensors"):
        there = {f"metastore_assets/{folder}/{path.name}" for path in (REPOSITORY / folder).glob("*.py")}
        assert there == {name for name in names if name.startswith(f"metastore_assets/{folder}/")}


def test_a_project_with_packages_of_the_same_names_loads_the_definitions(wheel: Path, tmp_path: Path) -> None:
    """Its own `resources` and `sensors` stay its own, and the definitions load beside them."""
    installed, project = tmp_path / "installed", tmp_path / "project"
    arguments = ("--no-deps", "--no-index", "--quiet", "--no-compile", "--target", str(installed), str(wheel))
    _run("-m", "pip", "--disable-pip-version-check", "install", *arguments, folder=tmp_path)
    for name in ("resources", "sensors"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text(f"OWNER = 'the project, {name}'\n")
    (project / "metastore.yaml").write_text("root: ./metastore\ntables: [{name: sales, uri: ./sales, format: delta}]\n")
    program = (
        "import resources, sensors, metastore_assets.definitions as found;"
        "print(resources.OWNER, sensors.OWNER, found.__file__, [sensor.name for sensor in found.defs.sensors], sep='|')"
    )
    output = _run("-c", program, folder=project, PYTHONPATH=f"{project}{os.pathsep}{installed}", METASTORE_CONFIG="")
    resources, sensors, file, package_file = output.strip().split("|")
    assert (resources, sensors) == ("the project, resources", "the project, sensors")
    assert Path(file).is_relative_to(installed)
    assert package_file == "['sales_commits']"
