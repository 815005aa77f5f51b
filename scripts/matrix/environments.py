"""The checked environments, and how one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
NAMED = ("dagster", "pyspark", "pyarrow", "polars", "deltalake", "pyiceberg", "pydantic", "numpy", "duckdb")
"""Packages whose versions are shown in the report."""
CACHE = "uv"
"""Name of the folder with uv's cache, next to the environments."""


@dataclass(frozen=True)
class Environment:
    """A Python version, and the versions of the packages in pyproject.toml."""

    name: str
    python: str
    """The Python version, such as `3.12`."""
    lowest: bool = False
    """Whether each package of pyproject.toml has its lowest version instead of its newest."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Additional version constraints by package, such as `==1.12.*`."""


ENVIRONMENTS = (
    Environment("lowest", "3.11", lowest=True),
    Environment("newest", "3.13"),
    Environment("python-3.12", "3.12"),
    Environment("dagster-1.12", "3.12", pins={"dagster": "==1.12.*"}),
    Environment("dagster-1.13.0", "3.12", pins={"dagster": "==1.13.0"}),
    Environment("pyspark-3.5", "3.11", pins={"pyspark": "==3.5.*"}),
    Environment("pyspark-4.0", "3.12", pins={"pyspark": "==4.0.*"}),
    Environment("pyspark-4.1", "3.12", pins={"pyspark": "==4.1.*"}),
    Environment("pyspark-4.2", "3.12", pins={"pyspark": "==4.2.*"}),
    Environment("pyarrow-24", "3.12", pins={"pyarrow": "==24.*"}),
    Environment("pyarrow-25", "3.12", pins={"pyarrow": "==25.*"}),
    Environment("polars-1", "3.12", pins={"polars": "==1.*"}),
)


@contextmanager
def temporary_environment(environment: Environment, folder: Path) -> Iterator[Path]:
    """Install an environment with `uv`, yield its Python interpreter, and remove the environment.

    An environment takes more than a gigabyte, and resolving one with an older PySpark takes several more. Downloads are
    cached in `folder`. Before the next environment, they are deleted, except packages that were built from source.

    Args:
        environment: The environment.
        folder: The folder of all environments and the cache.

    Raises:
        LookupError: If this machine does not have the Python version.
        subprocess.CalledProcessError: If the packages cannot be resolved or installed. Its output has the reason.
    """
    home = folder / environment.name
    interpreter = str(find_python(environment.python))
    if (folder / CACHE).exists():
        _uv(folder, "cache", "prune", "--ci", "--quiet")
    try:
        _uv(folder, "venv", "--quiet", "--clear", "--no-python-downloads", "--python", interpreter, str(home))
        python = home / "bin" / "python"
        pins = folder / f"{environment.name}.txt"
        pins.write_text("".join(f"{name}{version}\n" for name, version in environment.pins.items()))
        resolution = "lowest-direct" if environment.lowest else "highest"
        _uv(
            folder,
            *("pip", "install", "--quiet", "--python", str(python), "--resolution", resolution),
            # Old releases often cannot be built from source any more, so only wheels are used. PySpark has no wheels.
            *("--only-binary", ":all:", "--no-binary", "pyspark", "--no-binary", "metastore-assets"),
            *("--constraint", str(pins), "--editable", f"{REPOSITORY}[all]"),
        )
        yield python
    finally:
        shutil.rmtree(home, ignore_errors=True)


def find_python(version: str) -> Path:
    """Return an interpreter of a Python version such as `3.12`, from PATH or from pyenv's versions.

    Interpreters that do not run are ignored, such as shims of pyenv without a selected version.

    Raises:
        LookupError: If this machine has no such interpreter.
    """
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted(pyenv.glob(f"versions/{version}.*/bin"), reverse=True)
    for folder in folders:
        candidate = folder / f"python{version}"
        if os.access(candidate, os.X_OK):
            process = subprocess.run([str(candidate), "--version"], capture_output=True, text=True, check=False)
            if process.returncode == 0 and process.stdout.startswith(f"Python {version}."):
                return candidate
    raise LookupError(f"this machine has no Python {version}")


def versions(python: Path) -> dict[str, str]:
    """Return the versions of the packages in `NAMED`, by package, in an interpreter's environment."""
    program = "import importlib.metadata as m, sys; print('\\n'.join(m.version(name) for name in sys.argv[1:]))"
    installed_versions = subprocess.run(
        [str(python), "-P", "-c", program, *NAMED], capture_output=True, text=True, check=True
    ).stdout.split()
    return dict(zip(NAMED, installed_versions, strict=True))


def _uv(folder: Path, *arguments: str) -> None:
    """Run `uv` with a cache in a folder."""
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "--cache-dir", str(folder / CACHE), *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
