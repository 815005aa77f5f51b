"""Columns with `frequencies: repeated`: their algorithm, costs of changed policies, and errors.

A fragment is a data file with its deletes, and its profile is its statistics. A column is enumerated if all its values
are stored. It is fingerprinted if profiles have fingerprints (parts of the values' hashes) instead of values. The table
then stores its repeated values, which occur at least twice.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy, MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, NotStoredError, ProfileError
from metastore_assets.pipeline import auto_policies
from metastore_assets.pipeline.auto_policies import why_fingerprinted, why_not_fingerprinted
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import Target
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from metastore_assets.pipeline.value_counts import fingerprinted_values as print_values
from metastore_assets.pipeline.value_counts import fingerprints
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.produce import Dataflow, Delta
from metastore_assets.statistics import profile
from metastore_assets.statistics.profile import profile_field
from metastore_assets.store.entries import FRAGMENTS, StoredEntries
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import ValueCountReader
from metastore_assets.value_counts.fingerprinted import FINGERPRINT_DELTAS
from tests.pipeline.file_lake import latest
from tests.pipeline.test_fingerprints import PRINTED, Lake, _no_spark

LISTS = {"frequencies": "repeated", "algorithm": "enumeration"}


class Words(Lake):
    """A table with one column of texts."""

    def __init__(self, folder: Path, **policy: Any) -> None:
        super().__init__(folder, policy or PRINTED)

    @property
    def config(self) -> MetastoreConfig:
        config = TableConfig.model_validate(
            {"name": "t", "uri": str(self.folder / "lake"), "columns": {"word": self.policy}}
        )
        return MetastoreConfig(root=str(self.folder / "root"), engine="auto", tables=[config])

    def words(self, *values: str | None, part: int = 0) -> Path:
        return self.put(pa.table({"word": pa.array(values, pa.string())}), part)

    def top(self) -> list[tuple[str, int]]:
        return [(value.as_py(), count) for value, count in self.table.top("word", 100)]

    def read_again(self) -> dict[str, Any]:
        answer = plan_refresh(self.config, self.config.tables[0]).to_json()["read_again"]
        assert isinstance(answer, dict)
        return answer

    def algorithm(self) -> str:
        (row,) = self.table.statistics(["word"])
        return row.frequencies


@given(st.integers(1, 10**7), st.integers(1, 20))
def test_small_changes_do_not_revert_a_decision(distinct: int, repeats: int) -> None:
    values = distinct * repeats
    if why_not_fingerprinted(distinct, values):
        assert why_fingerprinted(distinct, values) is None
        assert why_fingerprinted(2 * distinct, 2 * values) is None


def test_columns_that_hardly_repeat_are_fingerprinted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column is fingerprinted as soon as few of its values can repeat.

    The decision is recorded with its reason. The column is enumerated again only after most of its values repeat.
    """
    for module in (auto_policies, profile):
        monkeypatch.setattr(module, "NEAR_UNIQUE_ABOVE", 100)
    lake = Words(tmp_path, frequencies="repeated")
    lake.words(*(f"unique {at}" for at in range(90)), "twice", "twice")
    lake.refresh()
    assert (lake.algorithm(), latest(lake.config).decisions) == ("enumerated", {})
    lake.words(*(f"more {at}" for at in range(90)), "twice", part=1)
    assert lake.refresh().fragments_profiled == 1
    decision = latest(lake.config).decisions["word"]
    assert (lake.algorithm(), decision.frequencies, decision.since) == ("repeated", "fingerprinted", 2)
    assert (decision.distinct, decision.values) == (181, 183)
    assert decision.reason == "about 181 of 183 values are distinct: few of them can occur twice"
    assert lake.top() == [("twice", 3)]
    # More repeat, but too few for value counts to be smaller.
    lake.words(*(f"more {at}" for at in range(90)), part=2)
    lake.refresh()
    assert lake.algorithm() == "repeated"
    assert len(lake.top()) == 91
    lake.words(*(["often"] * 900), part=2)
    lake.refresh()
    assert lake.algorithm() == "repeated", "the next plan names what is read for value counts"
    lake.words("twice")
    assert lake.read_again() == {"word": {"frequencies": 2}}
    lake.refresh()
    assert (lake.algorithm(), latest(lake.config).decisions["word"].frequencies) == ("enumerated", "enumerated")
    assert lake.top()[:2] == [("often", 900), ("twice", 4)]


@pytest.mark.parametrize("policy", [PRINTED, LISTS], ids=str)
def test_the_mode_of_values_that_do_not_repeat_is_unknown(tmp_path: Path, policy: dict[str, Any]) -> None:
    """Every value occurs once, so no value is stored, and a request for the mode raises a NotStoredError."""
    lake = Words(tmp_path, **policy)
    lake.words("a", "b", None)
    lake.refresh()
    assert lake.top() == []
    with pytest.raises(NotStoredError, match="'word'"):
        lake.table.mode("word")


def test_a_first_refresh_does_not_enumerate_near_unique_columns(tmp_path: Path) -> None:
    """One file has 70,000 distinct values, the others have few.

    Profiles of all files have fingerprints instead of values. The distinct count and the repeated values are exact.
    Repeated values are also exact after a commit.
    """
    lake = Words(tmp_path, frequencies="repeated")
    lake.put(pa.table({"word": pa.array(np.arange(70_000)).cast(pa.string())}), 2)
    lake.words("69999", "once", "unlisted value", *(f"short {at}" for at in range(40)))
    lake.words("one", "more", "once", part=1)
    lake.refresh()
    decision = latest(lake.config).decisions["word"]
    assert (lake.algorithm(), decision.frequencies) == ("repeated", "fingerprinted")
    assert lake.top() == [("69999", 2), ("once", 2)]
    assert lake.table.spread("word").distinct_count == 70_000 + 44
    for path in (tmp_path / "root" / "t" / "fragments").rglob("*.parquet"):
        assert "unlisted value" not in str(pq.read_table(path, columns=["enumerated_values"]).to_pydict())
    assert lake.refresh().published is False
    lake.words("short 7", part=1)
    assert lake.refresh().fragments_profiled == 1
    assert lake.top() == [("69999", 2), ("once", 2), ("short 7", 2)]


@pytest.mark.parametrize("frequencies", ["top(3)", "repeated"])
def test_many_distinct_values_of_one_file_are_enumerated(frequencies: str) -> None:
    """A file's profile has all 150,000 value counts with `top(3)`, and with `repeated` by enumeration.

    The option `algorithm: enumeration` makes `repeated` enumerate.
    """
    policy = ColumnPolicy(frequencies=frequencies, algorithm="enumeration" if frequencies == "repeated" else "auto")
    (column_profile,) = profile_field(
        pa.field("x", pa.int64()), [pa.array(range(0, 3_000_000, 20))], lambda path: policy
    )
    assert (column_profile.statistics.frequencies, column_profile.statistics.distinct_count) == ("enumerated", 150_000)
    assert column_profile.frequencies is not None


def test_fingerprints_are_derived_from_value_counts(tmp_path: Path) -> None:
    """A file is added, and the policy changes to fingerprints: only this file is read.

    A change back to value counts reads the fragments that have only fingerprints.
    """
    lake = Words(tmp_path, **LISTS)
    first = lake.words("a", "b", "b", None, "c")
    lake.words("c", "d", part=1)
    lake.refresh()
    lake.policy = PRINTED
    first.unlink()
    lake.words("e", "e", "a")
    assert lake.refresh().fragments_profiled == 1
    assert (lake.algorithm(), lake.top()) == ("repeated", [("e", 2)])
    lake.words("d", "a", part=2)
    lake.refresh()
    assert lake.top() == [("a", 2), ("d", 2), ("e", 2)]
    lake.policy = {"frequencies": "all"}
    assert lake.read_again() == {"word": {"frequencies": 2}}
    assert lake.refresh().fragments_profiled == 2
    assert dict(lake.top()) == {"a": 2, "d": 2, "e": 2, "c": 1}
    lake.policy = {"frequencies": "auto"}
    assert lake.refresh().fragments_profiled == 0
    lake.policy = PRINTED
    assert lake.refresh().fragments_profiled == 0
    assert lake.top() == [("a", 2), ("d", 2), ("e", 2)]
    for policy in ({"frequencies": "off"}, {"frequencies": "auto"}):
        lake.policy = policy
        lake.refresh()
    assert (lake.algorithm(), dict(lake.top())) == ("enumerated", {"a": 2, "d": 2, "e": 2, "c": 1})


def test_values_that_are_not_stored_are_read(tmp_path: Path) -> None:
    lake = Words(tmp_path, frequencies="off")
    lake.words("a", "b")
    lake.words("a", part=1)
    lake.refresh()
    lake.policy = PRINTED
    assert lake.read_again() == {"word": {"frequencies": 2}}
    lake.refresh()
    assert lake.top() == [("a", 2)]
    lake.policy = {"frequencies": "auto"}
    assert lake.read_again() == {"word": {"frequencies": 2}}, (
        "few values are enumerated, as fingerprints would not be smaller"
    )
    lake.policy = {"frequencies": "off"}
    assert lake.refresh().fragments_profiled == 0


def test_removed_values_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing a file reads no file.

    After an addition, only files with a value that becomes repeated are read. The plan has the number of files that may
    be read again.
    """
    lake = Words(tmp_path)
    lake.words("a", "b", "x")
    lake.words("a", "c", "x", part=1)
    going = lake.words("a", "c", "e", part=1)
    lake.words(*(f"other {at}" for at in range(20)), part=2)
    lake.refresh()
    assert lake.top() == [("a", 3), ("c", 2), ("x", 2)]
    read_counts: list[int] = []
    find = print_values._find_stored_values

    def counting(*arguments: Any) -> Any:
        result = find(*arguments)
        read_counts.append(len(result.ids))
        return result

    monkeypatch.setattr(print_values, "_find_stored_values", counting)
    going.unlink()
    lake.refresh()
    assert (lake.top(), sum(read_counts)) == ([("a", 2), ("x", 2)], 0)
    lake.words("new", "b", "other 3", part=3)
    plan = plan_refresh(lake.config, lake.config.tables[0]).to_json()
    assert plan["may_read_again"] == {"word": 3}
    lake.refresh()
    assert lake.top() == [("a", 2), ("b", 2), ("other 3", 2), ("x", 2)]
    assert sum(read_counts) == 3, "the new file, and the two files that share a value with it"


def test_only_the_partition_of_a_value_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a value occurs again, only its old partition and that of the new file are searched for it.

    This holds also after the old file was rewritten.
    """
    lake = Words(tmp_path)
    paths = [lake.words(f"first {part}", f"second {part}", part=part) for part in range(8)]
    lake.refresh()
    searched_keys: set[str] = set()
    find = print_values._find_stored_values

    def recording(*arguments: Any) -> Any:
        searched_keys.update(entry.partition_key for entry in arguments[-1])
        return find(*arguments)

    monkeypatch.setattr(print_values, "_find_stored_values", recording)
    lake.words("first 2", "new", part=8)
    lake.refresh()
    assert (lake.top(), searched_keys) == ([("first 2", 2)], {"p=2", "p=8"})
    searched_keys.clear()
    paths[4].unlink()
    lake.words("second 4", "first 4", part=4)
    lake.refresh()
    assert not searched_keys, "the rows are the same"
    lake.words("second 4", part=9)
    lake.refresh()
    assert (lake.top(), searched_keys) == ([("first 2", 2), ("second 4", 2)], {"p=4", "p=9"})


def test_unchanged_entries_are_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of unchanged fragments are never all in memory.

    An entry is the record of a fragment in a version. The first commit removes one of several values with the same
    fingerprint, so all fragments are searched. A later commit repeats a value of each partition.
    """
    monkeypatch.setattr(fingerprints, "TABLE_BITS", 1)
    monkeypatch.setattr("metastore_assets.pipeline.plan._ENTRIES_PER_LOOKUP", 4)
    lake = Words(tmp_path)
    for part in range(10):
        for at in range(2):
            lake.words(f"word {part} {at}", part=part)
    going = lake.words("gone", part=10)
    lake.refresh()
    bases: list[Any] = []
    lookups: list[int] = []
    next_fragments, find_prefixes = Target.next_fragments, StoredEntries.find_prefixes

    def recording(target: Target, *arguments: Any) -> Any:
        bases.append(target.base)
        return next_fragments(target, *arguments)

    def counting(entries: StoredEntries[Any], prefixes: Any) -> Any:
        result = find_prefixes(entries, prefixes)
        lookups.extend([len(result)] if entries.kind is FRAGMENTS else [])
        return result

    monkeypatch.setattr(Target, "next_fragments", recording)
    monkeypatch.setattr(StoredEntries, "find_prefixes", counting)
    going.unlink()
    lake.refresh()
    assert bases, "fragments were searched"
    assert hasattr(StoredEntries, "_entries")
    assert all("_entries" not in base.fragments.__dict__ for base in bases)
    monkeypatch.setattr(fingerprints, "TABLE_BITS", 48)
    lake.words("other", part=11)
    lake.refresh()
    lookups.clear()
    lake.words(*(f"word {part} 1" for part in range(10)), part=12)
    lake.refresh()
    assert dict(lake.top()) == {f"word {part} 1": 2 for part in range(10)}
    assert (max(lookups), sum(lookups)) == (4, 20)


def test_an_append_writes_each_fingerprint_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If five new values are appended, the update of the fingerprints has five rows."""
    lake = Words(tmp_path)
    lake.words(*(f"first {at}" for at in range(20)))
    lake.refresh()
    deltas: list[Delta] = []
    step = Dataflow.step

    def recording(flow: Dataflow, state: Any, changes: Any) -> Any:
        deltas.extend(changes.get(FINGERPRINT_DELTAS, ()))
        return step(flow, state, changes)

    monkeypatch.setattr(Dataflow, "step", recording)
    lake.words(*(f"second {at}" for at in range(5)), part=1)
    lake.refresh()
    assert sum(delta.row_count for delta in deltas) == 5


def test_values_that_occur_again_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update reads the few counts that it needs, and never all value counts of the column."""
    lake = Words(tmp_path)
    lake.words(*(f"{at // 2}" for at in range(400)))
    lake.refresh()
    lake.words("7", "8", "8", "new", part=1)
    with monkeypatch.context() as patch:
        patch.setattr(ValueCountReader, "batches", None)
        lake.refresh()
    assert lake.top()[:3] == [("8", 4), ("7", 3), ("0", 2)]
    assert lake.table.spread("word").distinct_count == 201


def test_exact_answers_and_not_stored_errors(tmp_path: Path) -> None:
    lake = Words(tmp_path)
    lake.words("a", "b", "b", None)
    lake.words("a", "c", part=1)
    lake.refresh()
    table = lake.table
    answer = {word: table.frequency("word", word) for word in ("a", "b", "c", "d")}
    assert {word: (result.value, result.guarantee) for word, result in answer.items()} == {
        "a": (2, "exact"),
        "b": (2, "exact"),
        "c": (1, "estimate"),
        "d": (0, "exact"),
    }
    together = table.value_counts.column("word").frequencies(pa.array([*answer], pa.large_string()))
    assert together == [*answer.values()]
    assert table.mode("word").value is not None
    assert {each.column: each for each in table.spread()}["word"] == table.spread("word")
    assert [*map(tuple, table.locate("word", "d"))] == []
    requests = [
        lambda: table.quantile("word", 0.5),
        lambda: table.rank("word", "a"),
        lambda: table.frequency_between("word", "a", "b"),
        lambda: table.locate("word", "a"),
        lambda: table.top("word", partition="p=1"),
    ]
    for ask in requests:
        with pytest.raises(NotStoredError, match=r"`frequencies: repeated`.*`frequencies: all`"):
            ask()
    (row,) = table.statistics(["word"], partition="p=0")
    assert (row.frequencies, row.distinct_count_guarantee, row.duplicate_count) == ("repeated", "estimate", None)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"frequencies": "all", "algorithm": "fingerprints"}, "`frequencies: repeated`"),
        ({"algorithm": "enumeration"}, "`frequencies: repeated`"),
        ({**PRINTED, "ranks": "on"}, "`algorithm: enumeration`"),
        ({**PRINTED, "by_partition": "on"}, "`by_partition: on` .*`algorithm: fingerprints`"),
        ({"frequencies": "repeated", "algorithm": "bloom"}, "algorithm"),
    ],
)
def test_contradicting_policies_are_refused(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TableConfig.model_validate({"name": "t", "uri": "lake", "columns": {"word": policy}})


def test_ranks_require_enumerated_values() -> None:
    config = TableConfig.model_validate(
        {"name": "t", "uri": "lake", "columns": {"word": {"frequencies": "repeated", "ranks": "on"}}}
    )
    assert config.effective_policy("word").algorithm == "enumeration"


def test_tables_of_one_file_of_nulls_or_without_rows_are_refreshed(tmp_path: Path) -> None:
    lake = Words(tmp_path)
    path = lake.words("a", "a", "b")
    lake.refresh()
    assert lake.top() == [("a", 2)]
    (row,) = lake.table.statistics(["word"])
    assert (row.distinct_count, row.duplicate_count, row.distinct_count_guarantee) == (2, 1, "exact")
    path.unlink()
    lake.words(None, None)
    lake.refresh()
    assert (lake.top(), lake.table.spread("word").distinct_count) == ([], 0)
    lake.words("z", "z")
    lake.refresh()
    assert lake.top() == [("z", 2)]


def test_verify_reports_changed_fingerprints(tmp_path: Path) -> None:
    lake = Words(tmp_path)
    path = lake.words("a", "b", "b")
    lake.words("a", "c", part=1)
    lake.refresh()
    assert verify(lake.config, lake.config.tables[0], _no_spark).is_right
    store, old = ObjectStore(lake.config.root).child("t"), path.stat()
    data = path.read_bytes()
    state = next(entry.files.states for entry in latest(lake.config).fragments if entry.path.endswith(path.name))
    other = Words(tmp_path / "other")
    other.words("a", "b", "d")
    other.refresh()
    other_files = next(entry.files for entry in latest(other.config).fragments)
    assert data == path.read_bytes()
    assert old.st_size
    store.write(state, ObjectStore(other.config.root).child("t").read(other_files.states))
    assert not verify(lake.config, lake.config.tables[0], _no_spark).is_right


def test_compaction_and_purge_change_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most frequent values stay the same after a compaction and a purge.

    After the purge, no file contains a deleted value.
    """
    lake = Words(tmp_path)
    removed_file = lake.words("Ada Deleted-Person", "b", "x")
    lake.words("Ada Deleted-Person", "c", "x", "b", part=1)
    lake.refresh()
    retained_file = lake.words("d", "x", part=2)
    lake.refresh()
    removed_file.unlink()
    (tmp_path / "lake" / "p=1" / "2.parquet").unlink()
    lake.words("b", "c", "x", "b", part=1)
    lake.refresh()
    expected = [("b", 2), ("x", 2)]
    assert lake.top() == expected
    store = VersionStore(ObjectStore(lake.config.root), "t")
    compact(store, lake.config.tables[0])
    assert lake.top() == expected
    purge(Engine(_no_spark), store, latest(lake.config).number)
    assert lake.top() == expected
    for path in (tmp_path / "root").rglob("*.parquet"):
        assert "Ada" not in str(pq.read_table(path).to_pydict()), path
    retained_file.unlink()
    lake.refresh()
    assert lake.top() == [("b", 2)]


def test_an_overwritten_file_is_an_error(tmp_path: Path) -> None:
    """A refresh that reads a file again for its repeated values fails if the file was overwritten.

    The refresh stores no value counts. When the file is back, the next refresh succeeds.
    """
    lake = Words(tmp_path)
    path = lake.words("a", "b")
    lake.words("c", part=1)
    lake.refresh()
    stat = path.stat()
    data = path.read_bytes()
    lake.words("a", part=1)
    path.write_bytes(b"PAR1" + bytes(len(data) - 8) + b"PAR1")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    before = sorted((tmp_path / "root" / "t" / "value_counts").iterdir())
    with pytest.raises(ProfileError, match=r"1\.parquet"):
        lake.refresh()
    assert sorted((tmp_path / "root" / "t" / "value_counts").iterdir()) == before
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    lake.refresh()
    assert lake.top() == [("a", 2)]


def test_a_file_removed_while_its_values_are_read_causes_a_new_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data file is removed while a refresh reads it for repeated values.

    The refresh plans again from the current table.
    """
    lake = Words(tmp_path)
    going = lake.words("a", "b")
    lake.words("c", "d", part=1)
    lake.refresh()
    lake.words("a", "c", part=1)
    find = print_values.find_values

    def late(*arguments: Any) -> Any:
        going.unlink(missing_ok=True)
        return find(*arguments)

    monkeypatch.setattr("metastore_assets.pipeline.value_counts.fingerprints.find_values", late)
    lake.refresh()
    assert lake.top() == [("c", 2)]


def test_columns_may_be_added_dropped_and_change_their_class(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.put(pa.table({"code": ["a", "a", "b"], "number": pa.array([1, 1, 2], pa.int64())}))
    going = lake.put(pa.table({"code": ["b", "c"]}), 1)
    last = lake.put(pa.table({"code": ["x", "y", "z"], "number": pa.array([7, 8, 9], pa.int64())}), 1)
    lake.policy = PRINTED
    table = lake.config.tables[0].model_copy(update={"columns": {"default": ColumnPolicy(**PRINTED)}})
    config = lake.config.model_copy(update={"tables": [table]})

    def top(column: str) -> dict[Any, int]:
        refresh(config, table, _no_spark)
        return {value.as_py(): count for value, count in lake.table.top(column, 9)}

    assert top("code") == {"a": 2, "b": 2}
    assert top("number") == {1: 2}
    lake.put(pa.table({"number": [2.0, 2.5]}), 2)
    assert top("number") == {1.0: 2, 2.0: 2}
    assert top("code") == {"a": 2, "b": 2}
    going.unlink()
    lake.put(pa.table({"new": ["n", "n"], "code": ["z", "q"]}), 2)
    assert top("new") == {"n": 2}
    assert top("code") == {"a": 2, "z": 2}
    last.unlink()
    lake.put(pa.table({"number": [7.0], "code": ["x"]}), 1)
    assert top("code") == {"a": 2}
    assert top("number") == {1.0: 2, 2.0: 2}


def test_hidden_values_have_no_fingerprints(tmp_path: Path) -> None:
    lake = Words(tmp_path, **PRINTED, values="hidden")
    lake.words("a", "a")
    lake.refresh()
    assert lake.algorithm() == "absent"


def test_fingerprints_take_about_four_bytes_per_value(tmp_path: Path) -> None:
    """The fingerprints of 60,000 values take less than 5.2 bytes per value, in each of two places.

    They are stored in the profiles of fragments, and in the value counts of the table.
    """
    lake = Words(tmp_path)
    count = 60_000
    data = np.random.default_rng(1).bytes(16 * count)
    lake.words(*(data[at : at + 16].hex() for at in range(0, len(data), 16)))
    lake.refresh()
    sizes = {path: path.stat().st_size for path in (tmp_path / "root").rglob("*.parquet")}
    profiles = sum(size for path, size in sizes.items() if path.parent.name == "fragments")
    value_counts = sum(size for path, size in sizes.items() if path.parent.name == "value_counts")
    assert profiles < 5.2 * count
    assert value_counts < 5.2 * count
