"""Errors about a table advise what to do about data files that could not be read."""

from __future__ import annotations

import gzip
import re
import zipfile
from pathlib import Path

import pytest

from metastore_assets.errors import ProfileError
from metastore_assets.pipeline.profiling import FailureAdvice
from metastore_assets.profiling import profile


def test_advice_for_damaged_and_unsupported_files(tmp_path: Path) -> None:
    """Repair or removal is advised for damaged files only, not for unsupported ones."""
    (tmp_path / "a.csv").write_text("id,text\n1,a\n2,b\n")
    with zipfile.ZipFile(tmp_path / "b.csv", "w") as archive:
        archive.writestr("b.csv", "id,text\n3,c\n")
    with pytest.raises(ProfileError) as error_info:
        profile(tmp_path)
    assert re.search(r"b\.csv\b.*\bzip\b", str(error_info.value))
    assert str(error_info.value).endswith(FailureAdvice.UNSUPPORTED)
    (tmp_path / "c.csv").write_bytes(gzip.compress(b"id,text\n4,d\n")[:-8])
    with pytest.raises(ProfileError) as error_info:
        profile(tmp_path)
    assert str(error_info.value).endswith(FailureAdvice.BOTH)
    (tmp_path / "b.csv").unlink()
    with pytest.raises(ProfileError) as error_info:
        profile(tmp_path)
    assert str(error_info.value).endswith(FailureAdvice.DAMAGED)


def test_a_file_that_is_not_damaged_is_not_called_damaged(tmp_path: Path) -> None:
    """If the declared type of a column does not fit a file, the error advises to change the declaration.

    Repair or removal is advised only for the case that a file is damaged.
    """
    (tmp_path / "a.csv").write_text("id,price\n1,0.5\n")
    with pytest.raises(ProfileError) as error_info:
        profile(tmp_path, schema={"price": "bigint"})
    assert re.search(r"\bschema\.price\b.*\bonly\b.*\bdamaged$", str(error_info.value))
