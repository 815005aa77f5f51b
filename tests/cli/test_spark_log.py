"""Spark's log is removed after an interrupted call."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from metastore_assets.cli.progress import HiddenProgress
from metastore_assets.cli.spark import LazySpark


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_log_of_an_interrupted_call_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_interrupted: bool
) -> None:
    """If an interrupt made the call to Spark fail, Spark's log is removed.

    After any other failure, the log stays and the error names its path.
    """

    def failing(*_: object, **__: object) -> None:
        if not is_interrupted:
            raise RuntimeError("gone")
        try:
            raise SystemExit(143)
        except SystemExit:
            raise RuntimeError("the call did not return")  # noqa: B904

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("metastore_assets.spark.session.get_spark_session", failing)
    with pytest.raises(RuntimeError) as error_info, LazySpark({}, HiddenProgress()) as spark:
        spark()
    logs = [str(path) for path in tmp_path.iterdir()]
    assert len(logs) == (not is_interrupted)
    assert [path in note for path in logs for note in getattr(error_info.value, "__notes__", ())] == [True] * len(logs)
