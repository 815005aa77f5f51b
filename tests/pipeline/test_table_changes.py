"""A plan applies the changes that a format reports to the published version's fragments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import StoreError
from metastore_assets.formats import metadata_cache
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.next_version import _changed_fragments
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.pipeline.value_counts import fingerprints
from metastore_assets.store.version import FragmentEntry, ProfileFiles
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.pipeline.test_refresh import no_spark
from tests.robustness.refresh_assertions import versions
from tests.robustness.test_differences import without_differences


def test_possibly_removed_files_are_looked_up_in_the_version(tmp_path: Path) -> None:
    """A file that commits add and remove counts as removed only if the published version has it.

    The commits add and remove two files, and the version has one of them.
    """
    folder = tmp_path / "t"
    adds = [add_file(folder, pa.table({"a": [number]}), f"{number}.parquet") for number in range(3)]
    removes = [{"remove": {"path": add["add"]["path"], "dataChange": True}} for add in adds]
    commit(folder, protocol(), metadata([field("a", "long")]), adds[0], adds[1])
    table = TableConfig(name="t", uri=str(folder))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, table, no_spark)
    for number in (1, 2):
        commit(folder, adds[number])
        commit(folder, removes[number])
    plan = plan_refresh(config, table)
    assert plan.to_json()["full_comparison"] is None
    assert [Path(entry.path).name for entry in plan.removed_fragments] == ["1.parquet"]
    assert (plan.added_ids, plan.unchanged_count) == ((), 1)


def test_a_file_listed_twice_gives_no_difference(tmp_path: Path) -> None:
    """An Iceberg commit adds a file that the table has already, so its rows count twice.

    The plan compares all fragments.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    file = writer.data(pa.table({"id": [1, 2]}))
    writer.commit(file, retain_manifests=True)
    writer.commit(writer.data(pa.table({"id": [3]})), retain_manifests=True)
    table = TableConfig(name="t", uri=str(writer.folder))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    refresh(config, table, no_spark)
    writer.commit(writer.data(pa.table({"id": [4]})), retain_manifests=True)
    assert plan_refresh(config, table).to_json()["full_comparison"] is None
    writer.commit({key: value for key, value in file.items() if key != "sequence_number"}, retain_manifests=True)
    assert re.search(r"\btable\b.*\bfile several\b", plan_refresh(config, table).to_json()["full_comparison"])
    refresh(config, table, no_spark)
    version = versions(config).latest()
    assert version is not None
    assert version.row_count == 6


def test_files_without_ids_are_read_for_a_column_that_they_may_have(tmp_path: Path) -> None:
    """A file without field ids has a column that gets an id later, from a name mapping.

    Only this file is read again.
    """
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")])
    table = TableConfig(name="t", uri=str(writer.folder))
    config = MetastoreConfig(root=str(tmp_path / "root"), tables=[table], engine="auto")
    for ids, names in (([1, 2], ("id", "more")), ([3], ("id",))):
        writer.properties["schema.name-mapping.default"] = '[{"field-id": 1, "names": ["id"]}]'
        writer.commit(writer.data(pa.table(dict.fromkeys(names, ids)), ids=False))
    refresh(config, table, no_spark)
    writer.schemas.append([column(1, "id", "long"), column(2, "more", "long")])
    writer.properties["schema.name-mapping.default"] = (
        '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["more"]}]'
    )
    writer.write_metadata()
    assert refresh(config, table, no_spark).fragments_profiled == 1
    more = {row.column: row for row in Metastore(str(tmp_path / "root")).table("t").statistics()}["more"]
    assert (more.value_count, more.null_count) == (2, 1)


def test_two_fragments_with_one_path_are_refused_by_name() -> None:
    """The error for two fragments of a partition with one path has the table, the partition and the path.

    So a user can remove one of the files.
    """
    fragments = {
        id_: FragmentEntry(id_, "day=1", path, 1, 1, "spec", (), ProfileFiles("", "", ()))
        for id_, path in (("a", "one"), ("b", "two"), ("c", "two"))
    }
    target: Any = SimpleNamespace(fragments_before=[], base=None, partitions=[SimpleNamespace(fragments=["a", "b"])])
    assert len(_changed_fragments("orders", target, fragments)) == 2
    target.partitions[0].fragments.append("c")
    with pytest.raises(StoreError, match=r"'orders'.*'day=1'.*'two'"):
        _changed_fragments("orders", target, fragments)


@dataclass
class _CommitDuringSearch:
    """A Delta table that gets a commit between the plan of a refresh and its search for values.

    The search reads data files for values that have become repeated.
    """

    monkeypatch: pytest.MonkeyPatch
    folder: Path
    table: TableConfig
    config: MetastoreConfig

    @classmethod
    def create(cls, monkeypatch: pytest.MonkeyPatch, folder: Path) -> _CommitDuringSearch:
        table = TableConfig.model_validate(
            {
                "name": "t",
                "uri": str(folder / "t"),
                "columns": {"a": {"frequencies": "repeated", "algorithm": "fingerprints"}},
            }
        )
        config = MetastoreConfig(root=str(folder / "root"), tables=[table], engine="auto")
        return cls(monkeypatch, folder / "t", table, config)

    def file(self, name: str, *values: int) -> dict[str, Any]:
        """Write a data file, and return the action that adds it."""
        return add_file(self.folder, pa.table({"a": values}), name)

    def refresh(self, *actions: dict[str, Any]) -> None:
        """Refresh, with a commit of these actions before the first search for values."""
        find_values, pending = fingerprints.find_values, [actions]

        def late(*arguments: Any) -> Any:
            if pending:
                commit(self.folder, *pending.pop())
            return find_values(*arguments)

        with self.monkeypatch.context() as patch:
            patch.setattr(fingerprints, "find_values", late)
            refresh(self.config, self.table, no_spark)
        assert not pending

    def repeated(self) -> dict[int, int]:
        """Return the stored repeated values with their frequencies."""
        stored_table = Metastore(self.config.root).table("t")
        return {value.as_py(): count for value, count in stored_table.top("a", 100)}


def test_a_commit_that_removes_a_searched_file_causes_a_new_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of a file occurs again, and a commit removes this file after the plan.

    The refresh plans again from the newest snapshot. The data file itself still exists.
    """
    case = _CommitDuringSearch.create(monkeypatch, tmp_path)
    first = case.file("first.parquet", 1, 2, 3)
    commit(case.folder, protocol(), metadata([field("a", "long")]), first, case.file("second.parquet", 4, 5, 6))
    refresh(case.config, case.table, no_spark)
    commit(case.folder, case.file("third.parquet", 1, 4))
    case.refresh({"remove": {"path": first["add"]["path"], "dataChange": True}})
    assert case.repeated() == {4: 2}
    version = versions(case.config).latest()
    assert version is not None
    assert (version.number, version.row_count) == (2, 5)


def test_a_commit_after_a_complete_comparison_leaves_the_cache_of_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version stores the cached metadata of the snapshot that was planned, not of a later one.

    The plan compares all files. A search for values then reads a later snapshot. The next plan uses the difference from
    the planned snapshot, and does not compare all files.
    """
    case = _CommitDuringSearch.create(monkeypatch, tmp_path)
    commit(case.folder, protocol(), metadata([field("a", "long")]), case.file("first.parquet", *range(20)))
    refresh(case.config, case.table, no_spark)
    commit(case.folder, case.file("second.parquet", 1, 40))
    with without_differences():
        case.refresh(case.file("third.parquet", 41))
    assert case.repeated() == {1: 2}
    metadata_cache.clear_process_cache()
    assert plan_refresh(case.config, case.table).to_json()["full_comparison"] is None
    refresh(case.config, case.table, no_spark)
    assert case.repeated() == {1: 2}
