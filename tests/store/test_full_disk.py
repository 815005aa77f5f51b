"""The error for a full disk names the folder of temporary files, not a file of the table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pytest

from metastore_assets.errors import StoreError
from metastore_assets.formats.readers.spill import write_temporary_parquet
from metastore_assets.store.sorted_runs import SortedRuns


@cache
def _rows() -> pa.Table:
    return pa.table({"key": pa.array(np.arange(1_000_000)).cast(pa.string())})


def _write_parquet() -> None:
    write_temporary_parquet(_rows().schema, _rows().to_batches(1000)).close()


def _sort() -> None:
    runs = SortedRuns(_rows().schema)
    for _ in range(3):
        runs.add(_rows())


@pytest.mark.parametrize("write", [_write_parquet, _sort])
def test_the_error_for_a_full_disk_names_the_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[], None]
) -> None:
    """The temporary file is /dev/full, to which every write fails as on a full disk.

    The error names the folder of temporary files and the variable TMPDIR.
    """

    def open_full(buffering: int = 0) -> IO[bytes]:
        return Path("/dev/full").open("r+b", buffering=buffering)

    monkeypatch.setattr(tempfile, "TemporaryFile", open_full)
    with pytest.raises(StoreError) as error_info:
        write()
    assert tempfile.gettempdir() in str(error_info.value)
    assert "TMPDIR" in str(error_info.value)
