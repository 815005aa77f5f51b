"""The wheel: its content, metadata, and use in a project with packages named like its own.

The names are `resources` and `sensors`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts.dist import changelog_problems, content_problems, metadata_problems, read_metadata, supported_pythons
from tests.conftest import REPOSITORY

_SOURCES = ("metastore_assets", "resources", "sensors", "pyproject.toml", "README.md", "LICENSE")


def _run(*command: str, folder: Path, **environment: str) -> str:
    process = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


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
    (wheel_path,) = (folder / "wheels").glob("*.whl")
    return wheel_path


def test_the_wheel_contains_exactly_the_package(wheel: Path) -> None:
    """The wheel has all files of the package in git, with two subpackages, and no tests.

    The subpackages are `resources` and `sensors`.
    """
    assert content_problems(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in names} == {"metastore_assets"}
    assert names >= {
        f"metastore_assets/{name}" for name in ("py.typed", "resources/__init__.py", "sensors/__init__.py")
    }
    assert not [name for name in names if "test" in Path(name).stem.split("_")]


def test_the_metadata_is_complete(wheel: Path) -> None:
    """The wheel's metadata equal those in pyproject.toml, and name each tested Python.

    They include licence, classifiers, extras and description.
    """
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = read_metadata(wheel)
    assert metadata_problems(metadata, project) == []
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {"3.11", "3.12", "3.13"} <= set(supported_pythons(project))
    assert metadata.get_payload() == (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_changelog_has_the_version_with_a_date() -> None:
    """The newest release is the version in pyproject.toml; another version, or no date, is reported."""
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert changelog_problems(changelog, version) == []
    assert changelog_problems(changelog, "9.9.9") == ["CHANGELOG.md does not have 9.9.9 as its newest release"]
    (problem,) = changelog_problems(f"## [Unreleased]\n\n## [{version}] - soon\n", version)
    assert "without a date" in problem
    (problem,) = changelog_problems("## [1.1.0] - 2026-01-01\n\n## [1.0.0] - 2026-02-01\n", "1.1.0")
    assert "not in order" in problem


def test_an_incomplete_wheel_is_reported(wheel: Path, tmp_path: Path) -> None:
    """A missing `py.typed`, an included test, and metadata without an extra are each reported."""
    changed_wheel = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(changed_wheel, "w") as target_archive:
        for name in archive.namelist():
            if not name.endswith("py.typed"):
                content = archive.read(name)
                target_archive.writestr(name, content.replace(b"Provides-Extra: hudi\n", b""))
        target_archive.writestr("tests/test_wheel.py", "")
    assert content_problems(changed_wheel) == [
        "metastore_assets/py.typed is missing",
        "tests/test_wheel.py is not a file of the package in git",
        "py.typed is missing: type checkers would ignore the annotations",
    ]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (problem,) = metadata_problems(read_metadata(changed_wheel), project)
    assert problem.startswith("the extras are")


@pytest.mark.long
def test_a_project_with_packages_of_the_same_names_loads_the_definitions(wheel: Path, tmp_path: Path) -> None:
    """The project's `resources` and `sensors` are not replaced, and the definitions load beside them."""
    install_folder, project = tmp_path / "installed", tmp_path / "project"
    arguments = ("--no-deps", "--no-index", "--quiet", "--no-compile", "--target", str(install_folder), str(wheel))
    _run("-m", "pip", "--disable-pip-version-check", "install", *arguments, folder=tmp_path)
    for name in ("resources", "sensors"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text(f"OWNER = 'the project, {name}'\n")
    (project / "metastore.yaml").write_text("root: ./metastore\ntables: [{name: sales, uri: ./sales, format: delta}]\n")
    program = (
        "import resources, sensors, metastore_assets.definitions as found;"
        "print(resources.OWNER, sensors.OWNER, found.__file__, [sensor.name for sensor in found.defs.sensors], sep='|')"
    )
    output = _run(
        "-c", program, folder=project, PYTHONPATH=f"{project}{os.pathsep}{install_folder}", METASTORE_CONFIG=""
    )
    resources, sensors, file, package_file = output.strip().split("|")
    assert (resources, sensors) == ("the project, resources", "the project, sensors")
    assert Path(file).is_relative_to(install_folder)
    assert package_file == "['sales_commits']"
