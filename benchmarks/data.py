"""TPC-H data for the benchmarks, generated once into a folder below `build/`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "build" / "benchmarks"


def lineitem(scale: float, parts: int) -> Path:
    """A folder of `parts` Parquet files with TPC-H's lineitem at a scale factor (1: six million rows)."""
    folder = FOLDER / f"lineitem-{scale:g}-{parts}"
    if folder.exists():
        return folder
    staging = FOLDER / f"{folder.name}.partial"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    generator = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run(
        [str(generator), "parquet", "-s", f"{scale:g}", "--tables=lineitem", f"--parts={parts}",
         f"--output-dir={staging}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (staging / "lineitem").rename(folder)
    shutil.rmtree(staging)
    return folder
