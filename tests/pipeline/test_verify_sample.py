"""A sample of fragments is drawn and compared without reading all of them into memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.formats import open_table_format
from metastore_assets.formats.base import Fragment
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.verification.verify import VerificationScope, verify
from metastore_assets.store.entries import StoredEntries
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol
from tests.pipeline.test_refresh import no_spark


def table_of(folder: Path, files: int) -> tuple[MetastoreConfig, TableConfig, list[dict[str, object]]]:
    """Write a Delta table of some files.

    Returns the configuration, the table, and the actions that add the files.
    """
    adds = [add_file(folder / "t", pa.table({"a": [number, None]}), f"{number}.parquet") for number in range(files)]
    commit(folder / "t", protocol(), metadata([field("a", "long")]), *adds)
    table = TableConfig(name="t", uri=str(folder / "t"))
    return MetastoreConfig(root=str(folder / "root"), tables=[table], engine="auto"), table, adds


@pytest.mark.slow
@given(st.integers(0, 6), st.sets(st.integers(0, 4), max_size=3))
@settings(max_examples=6)
def test_sampled_fragments_are_compared_unless_they_were_removed(count: int, lost_numbers: set[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        config, table, adds = table_of(Path(name), 5)
        refresh(config, table, no_spark)
        for number in lost_numbers:
            commit(Path(name) / "t", {"remove": {"path": adds[number]["add"]["path"], "dataChange": True}})  # type: ignore[index]
        result = verify(config, table, no_spark, VerificationScope(sample=count))
        assert result.is_right, result.differences
        sample_size = min(count, 5)
        assert max(0, sample_size - len(lost_numbers)) <= result.fragments <= min(sample_size, 5 - len(lost_numbers))
        assert result.skipped_partitions == (result.fragments < sample_size)
        assert (result.partitions, result.complete) == (0, False)


def test_a_sample_reads_neither_all_entries_nor_all_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, table, _ = table_of(tmp_path, 12)
    refresh(config, table, no_spark)
    alive, most = 0, 0
    monkeypatch.setattr(StoredEntries, "_entries", property(lambda self: pytest.fail("all entries are read")))
    create = Fragment.__init__

    class Counter:
        """An object that each fragment holds, so that fragments in memory can be counted."""

        def __init__(self) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def counted(self: Fragment, *arguments: object) -> None:
        create(self, *arguments)  # type: ignore[arg-type]
        object.__setattr__(self, "source", (self.source, Counter()))

    with monkeypatch.context() as patch:
        patch.setattr(Fragment, "__init__", counted)
        stream = open_table_format(table).stream()
        assert sum(1 for _ in stream.fragments) == 12
    assert most <= 3
    result = verify(config, table, no_spark, VerificationScope(sample=4))
    assert result.is_right, result.differences
    assert result.fragments == 4
