"""What is kept of a Delta log and the commits since say what the whole log says, whatever was done to the table."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.formats import MetadataCache, open_table_format
from metastore_assets.formats.delta import cached_log
from metastore_assets.formats.delta.actions import Replay
from metastore_assets.storage.location import Location
from tests.formats.delta.log_writer import commit, metadata, protocol
from tests.formats.delta.log_writer import field as column
from tests.formats.test_metadata_cache import assert_planned_alike, assert_same, plan

_STEPS = st.lists(
    st.sampled_from(
        ["append"] * 4 + ["delete", "compact", "restore", "vacuum", "checkpoint", "clean", "evolve", "again", "plan"]
    ),
    min_size=1,
    max_size=10,
)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few commits lead through all ways of keeping them."""
    monkeypatch.setattr(cached_log, "_MAX_FILES", 7)
    monkeypatch.setattr(cached_log, "_MAX_CHANGES", 2)


@given(steps=_STEPS)
@settings(max_examples=max(6, settings().max_examples // 20))
def test_histories(steps: list[str]) -> None:
    """Of commits by a real writer, which also cleans up its log, or makes the table again."""
    with tempfile.TemporaryDirectory() as folder:
        uri = f"{folder}/t"
        config = TableConfig(name="t", uri=uri)
        _append(uri, 30)
        cache_ = assert_planned_alike(config, {})
        for number, step in enumerate(steps):
            if step == "again":
                shutil.rmtree(uri)
                _append(uri, 2)
            elif step == "plan":
                cache_ = assert_planned_alike(config, cache_)
            else:
                _apply(uri, step, number)
        assert_planned_alike(config, cache_)


def _append(uri: str, count: int = 1, **more: Any) -> None:
    for _ in range(1 if count < 30 else 3):
        rows = pa.table({"id": range(count), "day": [str(number) for number in range(count)], **more})
        write_deltalake(uri, rows, mode="append", partition_by=["day"], schema_mode="merge")


def _apply(uri: str, step: str, number: int) -> None:
    table = DeltaTable(uri)
    if step == "append":
        _append(uri, 1 + number % 3)
    elif step == "delete":
        table.delete(f"day = '{number % 5}'")
    elif step == "compact":
        table.optimize.compact()
    elif step == "restore":
        with suppress(DeltaError):  # There is no such version any more.
            table.restore(max(0, table.version() - 2))
    elif step == "vacuum":
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    elif step == "checkpoint":
        table.create_checkpoint()
    elif step == "clean":
        table.create_checkpoint()
        for path in Path(uri, "_delta_log").glob("*.json"):
            if path.stem.isdigit() and int(path.stem) < table.version():
                path.unlink()
    elif step == "evolve":
        _append(uri, 1, **{f"c{number}": [1]})


def _add(path: str) -> dict[str, Any]:
    """The action that adds a file that nobody reads."""
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}


def test_a_recreated_table_is_another_one(tmp_path: Path) -> None:
    """Also when it has as many versions, and the newest commit is the same to the letter."""
    config = TableConfig(name="t", uri=str(tmp_path / "t"))
    cache_: Mapping[bytes, bytes] = {}
    for name in ("a", "b"):
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        commit(tmp_path / "t", protocol(), metadata([column("id", "long")]), _add(name))
        commit(tmp_path / "t", _add("c"))
        snapshot, cache_ = plan(config, cache_)
        assert sorted(Path(fragment.path).name for fragment in snapshot.fragments) == [name, "c"]


def test_the_checkpoint_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor commits that are known, when there is a newer checkpoint: only what came since."""
    uri = str(tmp_path / "t")
    config = TableConfig(name="t", uri=uri)
    _append(uri, 30)
    _, cache_ = plan(config, {})
    before = DeltaTable(uri).version()
    _append(uri)
    DeltaTable(uri).create_checkpoint()
    _append(uri)
    read: list[str] = []
    original = Replay._add

    def noted(self: Replay, name: str, actions: Any) -> None:
        read.append(name)
        original(self, name, actions)

    monkeypatch.setattr(Replay, "_add", noted)
    planned, _ = plan(config, cache_)
    assert read == [f"{before + 2:020}.json", f"{before + 1:020}.json"]
    read.clear()
    scratch, _ = plan(config, {})
    assert any("checkpoint" in name for name in read)
    assert_same(planned, scratch)


def test_a_time_reads_new_commits_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And finds the version that it finds without anything known."""
    folder = tmp_path / "t"
    commit(folder, protocol(), metadata([column("id", "long")]), _add("0"))
    for number in range(1, 6):
        commit(folder, _add(str(number)))
    moment = datetime.fromtimestamp(1_700_000_000.004, UTC)
    config = TableConfig(name="t", uri=str(folder), at=moment.isoformat())
    snapshot, cache_ = plan(config, {})
    assert snapshot.id == "4"
    opened: list[str] = []
    original = Location.open

    def noted(self: Location, path: str) -> Any:
        opened.append(path)
        return original(self, path)

    monkeypatch.setattr(Location, "open", noted)
    commit(folder, _add("6"))
    planned, cache_ = plan(config, cache_)
    assert_same(planned, snapshot)
    assert opened == [f"_delta_log/{6:020}.json"]
    opened.clear()
    assert open_table_format(config, MetadataCache(lambda: cache_, ignore_process=True)).current() == snapshot.reference
    assert opened == []
    later = config.model_copy(update={"at": datetime.fromtimestamp(1_700_000_000.006, UTC).isoformat()})
    assert_planned_alike(later, cache_)
