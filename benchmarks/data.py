"""TPC-H data for the benchmarks, generated once into `build/benchmarks`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "build" / "benchmarks"


def lineitem(scale: float, parts: int) -> Path:
    """Return the folder with TPC-H's lineitem in Parquet files.

    Generate it if it does not exist.

    Args:
        scale: TPC-H's scale factor; 1 is six million rows.
        parts: The number of files.
    """
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
