"""Versions are atomic, numbered, and readable until they expire, with the files that they reference.

A manifest names the files of a version.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, StoreError, VersionNotFoundError
from metastore_assets.produce import Dataflow, Delta, DeltaRoot, FlowState, Root, Rows, Settings, SumStage
from metastore_assets.produce.manifest import Manifests
from metastore_assets.store.objects import ObjectStore
from tests.produce.base_stage import BASE_LOAD, Base
from tests.produce.commit_plans import plan
from tests.produce.graph_model import Graph, RootNode, StageNode, columns
from tests.produce.harness import SMALL, D, Pair, U
from tests.produce.test_publishers import check_all


def test_a_new_flow_has_an_empty_version(store: ObjectStore) -> None:
    pair = Base(store, load=False)
    for view in (pair.flow.version(), pair.flow.version(0)):
        assert view.number == 0
        for table in (view.content("stage"), view.mappings("stage"), view.update("stage"), view.groups("stage", None)):
            assert table.num_rows == 0
        assert view.runs("stage") == []
    assert not pair.flow.compact(full=True)
    assert not store.list()


@pytest.mark.parametrize("seed", range(50, 54))
def test_old_versions_stay_readable(seed: int, tmp_path: Path) -> None:
    commit_plan = plan(seed, 6)
    store = ObjectStore(str(tmp_path))
    views = []
    for commit in commit_plan.commits:
        commit_plan.publish(store, commit)
        flow = Dataflow(store, commit_plan.case.graph.declaration(), settings=commit_plan.case.settings)
        views.append((flow.version(), flow.version().content(commit_plan.case.graph.nodes[-1].name)))
        flow.compact(full=True)
    check_all(commit_plan, store)
    for view, content in views:
        # As texts: in Arrow, NaN does not equal itself.
        assert str(view.content(commit_plan.case.graph.nodes[-1].name).to_pylist()) == str(content.to_pylist())


def test_expired_versions_are_deleted_with_their_files(store: ObjectStore) -> None:
    base = Base(store, settings=SMALL)
    for number in range(8):
        base.edit(D(number - 2), U(number, (number, "x")))
    before = len(store.list("data"))
    base.expire(keep=2)
    assert len(store.list("data")) < before
    for number in (8, 9):
        assert base.flow.version(number).number == number
        base.flow.version(number).content("stage")
    for number in (1, 7):
        with pytest.raises(VersionNotFoundError, match=str(number)):
            base.flow.version(number)
    with pytest.raises(VersionNotFoundError):
        base.flow.version(10)
    base.edit(*BASE_LOAD)
    assert base.number == 10


def test_a_version_is_published_even_if_temporary_files_cannot_be_deleted(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`advance` returns the number of the version if temporary files of its tasks cannot be deleted.

    A later expiry deletes these files. If `advance` raised an error, the caller would repeat the update and count its
    rows twice.
    """

    def refuse(self: ObjectStore, paths: list[str]) -> None:
        if paths:
            raise StoreError("cannot delete")

    key, amounts = pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())])
    graph = [DeltaRoot("rows", Rows(key, amounts)), SumStage("sums", ("rows",), ("k",), ("n",))]
    flow = Dataflow(store, graph, settings=SMALL)
    rows = pa.table({"k": range(500), "n": [1] * 500})
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete", refuse)
        assert flow.advance({"rows": [Delta(rows)]}) == 1
    assert flow.version().content("sums")["n"].to_pylist() == [1] * 500
    before = len(store.list("data"))
    flow.expire(keep=1, grace=timedelta(days=-1))
    assert len(store.list("data")) < before


def test_a_copy_of_an_older_manifest_is_damaged(store: ObjectStore) -> None:
    """A manifest whose content has another number than its file name is an error that names the file."""
    base = Base(store)
    base.edit(U(1, (1, "x")))
    store.write("versions/3.json", store.read("versions/1.json"))
    with pytest.raises(CorruptionError, match=r"versions/3\.json.*\b1\b"):
        base.flow.version()


def test_unreferenced_files_are_deleted_after_the_grace(store: ObjectStore) -> None:
    base = Base(store)
    store.write("data/stray.parquet", b"left by a process that was killed")
    base.flow.expire(keep=1, grace=timedelta(hours=1))
    assert "data/stray.parquet" in {info.path for info in store.list()}
    base.expire(keep=1)
    assert "data/stray.parquet" not in {info.path for info in store.list()}
    base.edit(U(1, (1, "x")))


@pytest.mark.parametrize("settings", [Settings(), SMALL], ids=["default", "small"])
def test_a_version_writes_only_files_that_it_references(store: ObjectStore, settings: Settings) -> None:
    """A version writes only files that it references.

    An expiry after the first version finds no file to delete, because temporary files of tasks are removed at once.
    """
    base = Base(store, settings=settings, load=False)
    base.edit(*(U(key, *((key * n % 7, f"{n}") for n in range(4))) for key in range(20)))
    files = {info.path for info in store.list("data")}
    base.expire(keep=1)
    assert {info.path for info in store.list("data")} == files


def test_a_view_of_deleted_files_explains_why(store: ObjectStore) -> None:
    base = Base(store, settings=Settings(single_run_rows=0, bulk_share=1e9))
    base.edit(U(1, (105, "fig")))
    view = base.flow.version()
    assert base.flow.compact(full=True)
    assert view.content("stage").num_rows == 4
    base.flow.expire(1, timedelta(0))
    with pytest.raises(VersionNotFoundError, match=r"version 2\b"):
        view.content("stage")
    with pytest.raises(VersionNotFoundError):
        view.groups("stage")
    assert base.flow.version().content("stage").num_rows == 4


def test_a_lost_file_is_not_reported_as_an_expired_version(store: ObjectStore) -> None:
    base = Base(store)
    run = base.flow.version().runs("stage")[0]
    store.delete([run.path])
    with pytest.raises(ObjectNotFoundError, match=run.path):
        base.flow.version().content("stage")


class Raced(ObjectStore):
    """A store in which all versions except the newest expire just before version 1 is read.

    Another process expires them.
    """

    def read(self, path: str) -> bytes:
        if path == "versions/1.json":
            Manifests(ObjectStore(self.uri())).expire(1, timedelta(0))
        return super().read(path)


def test_concurrent_expiries_do_not_interfere(tmp_path: Path) -> None:
    base = Base(ObjectStore(str(tmp_path)))
    base.edit(U(1, (105, "fig")))
    base.edit(U(2, (105, "fig")))
    result = Manifests(Raced(str(tmp_path))).expire(3, timedelta(0))
    assert result.versions == 0
    base.verify_state()
    with pytest.raises(VersionNotFoundError, match=r"version 1\b.*\b3\b"):
        base.flow.version(1)


def test_an_unchanged_stage_retains_its_files(store: ObjectStore) -> None:
    key, value = columns(k="int64"), columns(x="int64")
    nodes = [RootNode(name, key, value) for name in ("one", "other")]
    stages = [
        StageNode(f"of_{node.name}", ((node.name,),), key, value, lambda k, rows: ((k, row) for row in rows))
        for node in nodes
    ]
    pair = Pair(store, Graph((*nodes, *stages)))
    pair.advance({"one": [U(1, 1)], "other": [U(1, 2)]})
    before = pair.flow.version()
    pair.advance({"one": [U(1, 3)]})
    after = pair.flow.version()
    assert before.runs("other") == after.runs("other")
    assert before.runs("of_other") == after.runs("of_other")
    assert before.runs("of_one") != after.runs("of_one")


def test_large_tables_are_split_and_small_changes_are_runs(store: ObjectStore) -> None:
    settings = Settings(single_run_rows=0, target_rows=25, row_group_rows=5, buffer_rows=250, fan_in=4, small_rows=0)
    pair = Base(store, settings=settings, load=False)
    pair.edit(*(U(key, (key, "x")) for key in range(250)), exact_work=False)
    runs = pair.flow.version().runs("stage")
    assert len({run[1] for run in runs if run[0] == "content"}) >= 5, "shards"
    pair.edit(U(125, (125, "y")))
    added_runs = set(pair.flow.version().runs("stage")) - set(runs)
    assert sum(run[3] for run in added_runs if run[0] == "content") <= 4, "a change of one row writes few files"
    assert all(run in pair.flow.version().runs("stage") for run in runs if run[0] == "content")
    for key in range(0, 250, 50):
        pair.edit(D(key), exact_work=True)
    pair.compact()
    pair.compact(full=True)
    assert all(run[1] is not None for run in pair.flow.version().runs("stage")), "nothing is left at level 0"


def test_a_shard_of_less_than_twice_the_target_size_is_not_split(store: ObjectStore) -> None:
    settings = Settings(single_run_rows=0, target_rows=100, row_group_rows=20, fan_in=4, small_rows=0)
    rows = Rows(columns(k="int64"), columns(x="int64"))
    flow = Dataflow(store, [Root("r", rows)], settings=settings)
    stored_rows = pa.table({"k": range(0, 4000, 10), "x": range(400)})
    state = flow.load(FlowState(), {"r": stored_rows.to_batches(max_chunksize=100)})
    for digit in range(1, 5):
        keys = [10 * number + digit for number in range(15)]
        state = flow.step(state, {"r": pa.table({"_change": ["add"] * 15, "k": keys, "x": keys})})
    # Sixty new rows are more than half of the first shard, so it was merged completely.
    assert [run.rows for run in flow.view(state).runs("r")] == [160, 100, 100, 100]


def test_tables_may_become_empty_and_return(store: ObjectStore) -> None:
    pair = Base(store, settings=SMALL, load=False)
    for _ in range(3):
        pair.edit(*(U(key, (key % 5, "x")) for key in range(20)))
        pair.edit(*(D(key) for key in range(20)))
        pair.compact(full=True)
        assert pair.flow.version().content("stage").num_rows == 0
