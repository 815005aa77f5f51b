"""A context manager that makes `external_package`, the package of a table format, importable."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metastore_assets.plugins import TABLE_FORMATS

EXTERNAL_PACKAGE = Path(__file__).parent / "external_package"


@contextmanager
def installed(folder: Path = EXTERNAL_PACKAGE) -> Iterator[None]:
    """Add a folder of packages to the import path of this process and its children within the block.

    The packages may have entry points. The registered table formats are read again at the start and at the end.
    """
    paths, variable = list(sys.path), os.environ.get("PYTHONPATH")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), variable]))
    TABLE_FORMATS.refresh()
    try:
        yield
    finally:
        sys.path[:] = paths
        if variable is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = variable
        TABLE_FORMATS.refresh()
