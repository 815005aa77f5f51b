"""Which environments are tried, and how one is made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
NAMED = ("dagster", "pyspark", "pyarrow", "polars", "deltalake", "pyiceberg", "pydantic", "numpy", "duckdb")
"""Packages whose versions the report names."""


@dataclass(frozen=True)
class Environment:
    """What is installed, besides what follows from it."""

    name: str
    python: str
    lowest: bool = False
    """Whether each package of pyproject.toml has its lowest version, instead of its newest."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """By package, the requirement that replaces the range of pyproject.toml."""


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


def make(environment: Environment, folder: Path) -> Path:
    """Make an environment with `uv`, in a folder of its own. Returns its Python.

    Raises:
        subprocess.CalledProcessError: This machine has no such Python, or the packages cannot be resolved or installed;
            its output says why.
    """
    uv = str(Path(sys.executable).with_name("uv"))
    home = folder / environment.name
    _run(uv, "venv", "--quiet", "--clear", "--no-python-downloads", "--python", environment.python, str(home))
    python = home / "bin" / "python"
    pins = folder / f"{environment.name}.txt"
    pins.write_text("".join(f"{name}{version}\n" for name, version in environment.pins.items()))
    resolution = "lowest-direct" if environment.lowest else "highest"
    _run(
        *(uv, "pip", "install", "--quiet", "--python", str(python), "--resolution", resolution),
        # Sources of old releases often do not build any more. PySpark has no wheels.
        *("--only-binary", ":all:", "--no-binary", "pyspark", "--no-binary", "metastore-assets"),
        *("--constraint", str(pins), "--editable", f"{REPOSITORY}[all]"),
    )
    return python


def versions(python: Path) -> dict[str, str]:
    """Return the versions of `NAMED` in an environment."""
    program = "import importlib.metadata as m, sys; print('\\n'.join(m.version(name) for name in sys.argv[1:]))"
    found = subprocess.run(
        [str(python), "-P", "-c", program, *NAMED], capture_output=True, text=True, check=True
    ).stdout.split()
    return dict(zip(NAMED, found, strict=True))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
