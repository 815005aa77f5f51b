"""`make dist`: build sdist and wheel, check them, and run the tutorial with the wheel.

The tutorial runs in empty environments.
"""

from __future__ import annotations

import argparse
import email.message
import email.parser
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

from scripts.matrix.environments import REPOSITORY, find_python

_PACKAGE = "metastore_assets"
_TUTORIAL = REPOSITORY / "docs" / "tutorial" / "getting-started.md"
_NEXT_PYTHON = "3.14"
"""A Python version that is tried if the machine has it. It gets a classifier once the tutorial works with it."""
_PYTHON_CLASSIFIER = "Programming Language :: Python :: 3."
_LOCATION = f"import {_PACKAGE}; print({_PACKAGE}.__file__)"


def main() -> int:
    """Build and check the archives, and try the tutorial with each Python version.

    Print the results.

    A Python version that this machine lacks is reported and skipped.

    Returns:
        The exit status: 1 if a check or a tutorial fails, otherwise 0.
    """
    parser = argparse.ArgumentParser(prog="make dist", description=__doc__)
    parser.add_argument("pythons", nargs="*", metavar="3.x", help="only these Python versions")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "dist", help="where the archives are written")
    parser.add_argument("--release", action="store_true", help="also require what an upload needs: project.urls")
    arguments = parser.parse_args()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = arguments.pythons or [*supported_pythons(project), _NEXT_PYTHON]
    shutil.rmtree(arguments.folder, ignore_errors=True)
    # Without --wheel and --sdist, uv builds the wheel from the sdist. So an incomplete sdist is an error.
    _run(_tool("uv"), "build", "--quiet", "--out-dir", str(arguments.folder), str(REPOSITORY))
    (wheel,), (sdist,) = arguments.folder.glob("*.whl"), arguments.folder.glob("*.tar.gz")
    problems = [*content_problems(wheel), *metadata_problems(read_metadata(wheel), project)]
    problems += changelog_problems((REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), project["version"])
    if not project.get("urls"):
        if arguments.release:
            problems.append(
                "pyproject.toml has no [project.urls]: add the addresses of repository, documentation, issues"
            )
        else:
            print("note: pyproject.toml has no [project.urls] yet; --release requires them")
    for problem in problems:
        print(f"{wheel.name}: {problem}", file=sys.stderr)
    _run(
        _tool("uv"),
        "tool",
        "run",
        "--quiet",
        "--from",
        "twine>=6",
        "twine",
        "check",
        "--strict",
        str(wheel),
        str(sdist),
    )
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")
    has_failed = bool(problems)
    for python in pythons:
        outcome, success = try_tutorial(wheel, python)
        print(f"Python {python}: {outcome}", flush=True)
        has_failed |= not success
    return int(has_failed)


def supported_pythons(project: dict[str, Any]) -> list[str]:
    """Return the Python versions that the classifiers of the project name, such as `3.11`."""
    return [
        classifier.rpartition(" ")[2]
        for classifier in project["classifiers"]
        if classifier.startswith(_PYTHON_CLASSIFIER)
    ]


def content_problems(wheel: Path) -> list[str]:
    """Return how the files of a wheel differ from the package's files in git.

    Symbolic links in git are resolved.
    """
    tracked_paths = _run("git", "-C", str(REPOSITORY), "ls-files", _PACKAGE, "resources", "sensors").split()
    expected = {
        path if path.startswith(f"{_PACKAGE}/") else f"{_PACKAGE}/{path}"
        for path in tracked_paths
        if not (REPOSITORY / path).is_symlink()
    }
    with zipfile.ZipFile(wheel) as archive:
        contained_names = {name for name in archive.namelist() if ".dist-info/" not in name}
    problems = [f"{name} is missing" for name in sorted(expected - contained_names)]
    problems += [f"{name} is not a file of the package in git" for name in sorted(contained_names - expected)]
    if f"{_PACKAGE}/py.typed" not in contained_names:
        problems.append("py.typed is missing: type checkers would ignore the annotations")
    return problems


def read_metadata(wheel: Path) -> email.message.Message:
    """Return the core metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.parser.Parser().parsestr(archive.read(name).decode())


def metadata_problems(metadata: email.message.Message, project: dict[str, Any]) -> list[str]:
    """Return problems of a wheel's metadata: fields that are missing or differ from pyproject.toml.

    Args:
        metadata: The core metadata of the wheel.
        project: The table `project` of pyproject.toml.
    """
    required_fields = (
        "Summary",
        "Author",
        "License-Expression",
        "License-File",
        "Requires-Python",
        "Keywords",
        "Classifier",
    )
    problems = [f"the metadata has no {field}" for field in required_fields if not metadata.get_all(field)]
    if metadata["Version"] != project["version"]:
        problems.append(f"the version is {metadata['Version']}, not {project['version']}")
    if metadata["Description-Content-Type"] != "text/markdown":
        problems.append("the description is not Markdown")
    extras = set(metadata.get_all("Provides-Extra", []))
    if extras != set(project["optional-dependencies"]):
        problems.append(f"the extras are {sorted(extras)}")
    return problems


def changelog_problems(changelog: str, version: str) -> list[str]:
    """Return problems of the changelog for a release of a version.

    The first heading with a version must be of this version, and all versions must have ISO dates, newest first.
    """
    headings = re.findall(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\S+))?$", changelog, re.MULTILINE)
    released_versions = [(name, day) for name, day in headings if name != "Unreleased"]
    if not released_versions or released_versions[0][0] != version:
        return [f"CHANGELOG.md does not have {version} as its newest release"]
    days = [day for _, day in released_versions]
    try:
        dates = [date.fromisoformat(day) for day in days]
    except ValueError:
        return [f"CHANGELOG.md has a release without a date: {days}"]
    return [] if dates == sorted(dates, reverse=True) else ["the dates of CHANGELOG.md are not in order"]


def try_tutorial(wheel: Path, python: str) -> tuple[str, bool]:
    """Install a wheel with all extras into an empty environment, and run the tutorial with it.

    The tutorial runs outside of the repository. Afterwards, Dagster must load the definitions.

    Returns:
        A text about the result, and whether it is a success. A Python version that this machine lacks is a success.
    """
    with tempfile.TemporaryDirectory(prefix="metastore-dist-") as folder:
        home, work = Path(folder) / "environment", Path(folder) / "work"
        work.mkdir()
        try:
            interpreter = find_python(python)
        except LookupError as error:
            return f"not tried: {error}", True
        _run(_tool("uv"), "venv", "--quiet", "--no-python-downloads", "--python", str(interpreter), str(home))
        program = str(home / "bin" / "python")
        try:
            _run(_tool("uv"), "pip", "install", "--quiet", "--python", program, f"{_PACKAGE}[all] @ {wheel.as_uri()}")
            location = _run(program, "-P", "-c", _LOCATION, folder=work).strip()
            if not Path(location).is_relative_to(home):
                return f"fails: the package was imported from {location}", False
            examples = _run(program, "-P", str(REPOSITORY / "scripts" / "doc_examples.py"), str(_TUTORIAL), folder=work)
            definitions = (str(home / "bin" / "dagster"), "definitions", "validate", "-m", f"{_PACKAGE}.definitions")
            _run(*definitions, folder=work)
        except subprocess.CalledProcessError as error:
            return f"fails: {error.stderr[-3000:]}", False
        return f"the tutorial works ({examples.splitlines()[-1]}), and Dagster loads the definitions", True


def _tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _run(*command: str, folder: Path = REPOSITORY) -> str:
    """Run a command without Python's environment variables.

    Return its standard output.

    Raises:
        subprocess.CalledProcessError: If it fails. The error has its standard error.
    """
    hidden_variables = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "METASTORE_CONFIG")
    environment = {name: value for name, value in os.environ.items() if name not in hidden_variables}
    return subprocess.run(
        command,
        cwd=folder,
        env={**environment, "DAGSTER_DISABLE_TELEMETRY": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)}\n{error.stdout}\n{error.stderr}")
