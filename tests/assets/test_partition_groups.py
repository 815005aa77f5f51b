"""A group of a table's partitions with equal first columns is one partition in Dagster.

A content id is a digest of what determines the statistics of a partition or a group.
"""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import AssetMaterialization, DagsterInstance, ExecuteInProcessResult, Failure, MaterializeResult
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets import (
    MetastoreConfig,
    MetastoreTranslator,
    TableConfig,
    TablePartitions,
    build_metastore_definitions,
    fetch_column_statistics,
)
from metastore_assets.assets.partition_groups import PartitionGroup, PartitionGrouping
from metastore_assets.assets.partition_mapping import PartitionKeyMap
from metastore_assets.assets.pending_events import find_pending_events
from metastore_assets.assets.reported_state import ReportedState
from metastore_assets.expressions.partition_keys import decode_partition_key, encode_partition_key
from metastore_assets.metastore import Metastore
from metastore_assets.store.version import PartitionEntry, Version
from tests.assets.test_pending_events import files, version, with_entries
from tests.assets.user_project import DAYS, PARTITIONS, attached, commit, materialize, reported_row_counts

TEXTS = st.sampled_from(["", "a", "a-", "é", "a.b/c=d", "1", "10"]) | st.none()
KEYS = st.one_of(
    st.lists(TEXTS, min_size=3, max_size=3).map(lambda texts: list(zip(("d[a]y", "h ö", "x"), texts, strict=True))),
    st.lists(TEXTS, min_size=1, max_size=2).map(lambda texts: list(zip(("d[a]y", "h ö"), texts, strict=False))),
    st.just([("other", "1")]),
).map(encode_partition_key)
"""Keys of three partition columns; some have fewer columns or another one, as under older partition specs."""
ENTRIES = st.dictionaries(KEYS, st.tuples(st.sampled_from("uv"), st.integers(1, 3)), max_size=9)
COLUMNS = st.sampled_from([(), ("d[a]y",), ("d[a]y", "h ö"), ("d[a]y", "h ö", "x")])


def expected_group(columns: tuple[str, ...], key: str) -> str:
    items = decode_partition_key(key)
    first = items[: len(columns)]
    return encode_partition_key(first) if columns and tuple(name for name, _ in first) == columns else key


@given(COLUMNS, ENTRIES, ENTRIES)
def test_groups_are_the_sums_of_their_partitions(
    columns: tuple[str, ...], entries: dict[str, tuple[str, int]], others: dict[str, tuple[str, int]]
) -> None:
    """A group has the summed row count of its partitions, and the newest of their versions.

    The content id of a group changes if the content id or the key of one of its partitions changes.
    """
    grouping, contents, groups = PartitionGrouping(columns), [], []
    for each in (entries, others):
        version = with_entries(3, {key: (content, number, files(key)) for key, (content, number) in each.items()})
        version = replace(version, partition_columns=("d[a]y", "h ö", "x"))
        expected: dict[str, dict[str, tuple[str, int]]] = {}
        for key, entry in each.items():
            expected.setdefault(expected_group(columns, key), {})[key] = entry
        contents.append(grouping.contents(version))
        groups.append(expected)
        assert list(contents[-1]) == sorted(expected)
        found_groups = grouping.find(version, [*list(expected)[:2], "missing=1"])
        assert list(found_groups) == sorted(list(expected)[:2])
        assert grouping.members(each) == {key: sorted(expected[key]) for key in sorted(expected)}
        for key, group in found_groups.items():
            assert group.content_id == contents[-1][key]
            assert (group.row_count, group.version) == (len(expected[key]), max(n for _, n in expected[key].values()))
            assert not columns or (isinstance(group, PartitionGroup) and group.partitions == len(expected[key]))
    for key in groups[0].keys() & groups[1].keys():
        same = {k: c for k, (c, _) in groups[0][key].items()} == {k: c for k, (c, _) in groups[1][key].items()}
        assert (contents[0][key] == contents[1][key]) == same


GROUPED = PartitionGrouping(("day",))
HOURS = ("day=1/hour=1", "day=1/hour=2", "day=2/hour=1", "day=3/hour=1")
STEPS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(HOURS), st.sampled_from(["u", "v", ""])), st.sampled_from([None, 0, 1])),
    max_size=8,
)


@given(STEPS)
def test_after_a_complete_report_each_group_is_shown(steps: list[tuple[dict[str, str], int | None]]) -> None:
    """After a run has reported all pending events to Dagster, each group's last event is up to date.

    The content id in the event is then that of the group. Before, partitions are changed, removed and restored at
    random, and some runs are killed when they have reported only some events.
    """
    contents: dict[str, str] = {}
    shown_groups: dict[str, str] = {}
    since: dict[str, int] = {}
    reported_version: Version | None = None
    for number, (changes, cut) in enumerate([*steps, ({HOURS[0]: "u"}, None)], 1):
        before = dict(contents)
        contents = {key: content for key, content in {**contents, **changes}.items() if content}
        entries = [PartitionEntry(key, contents[key], 1, 1, 1, files("f"), number) for key in sorted(contents)]
        now = replace(version(number, f"t{number}", {}, columns=("day", "hour")), partitions=entries)
        groups = GROUPED.contents(now)
        identity = {key: key for key in groups}
        key_map = PartitionKeyMap(identity, identity, grouping=GROUPED)
        # Dagster hides the events of unregistered partitions only in its UI.
        state = ReportedState(
            reported_version, {key: shown_groups[key] for key in shown_groups if key in groups}, since
        )
        pending = find_pending_events(state, now, key_map=key_map)
        for group in pending.partitions[:cut]:
            shown_groups[group.key], since[group.key] = group.content_id, number
            assert group.row_count == sum(key.startswith(f"{group.key}/") for key in contents)
        if reported_version is not None and reported_version.number == number - 1:
            changed_keys = {
                key for key in HOURS if before.get(key) != contents.get(key) and GROUPED.key_of(key) in groups
            }
            assert {key for keys in pending.changed.values() for key in keys} == changed_keys
        if cut is None:
            reported_version, since = now, {}
            assert {key: shown_groups[key] for key in groups} == groups


def test_a_group_with_other_files_is_shown_again() -> None:
    """A group is reported again after the files of one of its partitions were replaced.

    The content of the partition is the same, but its statistics are stored in other files.
    """
    first = with_entries(1, {key: ("u", 1, files(key)) for key in HOURS})
    again = with_entries(2, {key: ("u", 1, files(key)) for key in HOURS} | {HOURS[0]: ("u", 2, files("new"))})
    first, again = (replace(each, partition_columns=("day", "hour")) for each in (first, again))
    groups = GROUPED.contents(again)
    key_map = PartitionKeyMap({key: key for key in groups}, {key: key for key in groups}, grouping=GROUPED)
    pending = find_pending_events(ReportedState(first, groups), again, key_map=key_map)
    assert [group.key for group in pending.partitions] == ["day=1"]
    assert pending.changed == {"day=1": ()}


def write(folder: Path, day: str, hours: dict[int, int]) -> None:
    """Append rows of one day.

    `hours` has the number of rows by hour.
    """
    count = sum(hours.values())
    table = {"day": [day] * count, "hour": [hour for hour in hours for _ in range(hours[hour])], "n": range(count)}
    write_deltalake(folder / "sales", pa.table(table), mode="append", partition_by=["day", "hour"])


def config(folder: Path, *columns: str) -> MetastoreConfig:
    table = {"name": "sales", "uri": str(folder / "sales"), "dagster": {"partition_columns": columns}}
    tables = [TableConfig.model_validate(table)]
    return MetastoreConfig(root=str(folder / "metastore"), engine="auto", tables=tables)


def events_of(instance: DagsterInstance, result: ExecuteInProcessResult | None) -> list[AssetMaterialization]:
    assert result is not None
    events = [entry.dagster_event for entry in instance.all_logs(result.run_id) if entry.dagster_event]
    materializations = [
        event.step_materialization_data.materialization for event in events if event.is_step_materialization
    ]
    return [event for event in materializations if event.asset_key == PARTITIONS]


def test_hours_of_a_day_are_one_partition(tmp_path: Path, instance: DagsterInstance) -> None:
    """For a table partitioned by day and hour, grouped by day, Dagster gets one partition per day.

    This holds for a commit, for a run of a selected day, and for the removal of a day.
    """
    write(tmp_path, "2024-01-01", {1: 3, 2: 5})
    write(tmp_path, "2024-01-02", {1: 2})
    definitions = build_metastore_definitions(config(tmp_path, "day"))
    assert reported_row_counts(instance, commit(definitions, instance), PARTITIONS) == {
        "day=2024-01-01": 8,
        "day=2024-01-02": 2,
    }
    assert instance.get_dynamic_partitions("sales_partitions") == ["day=2024-01-01", "day=2024-01-02"]

    write(tmp_path, "2024-01-01", {2: 1, 3: 4})
    (event,) = events_of(instance, commit(definitions, instance))
    values = {name: value.value for name, value in event.metadata.items()}
    assert (event.partition, values["dagster/partition_row_count"]) == ("day=2024-01-01", 13)
    assert (values["partitions"], values["partitions_changed"], values["fragments"]) == (3, 2, 4)
    assert values["changed_partitions"] == ["day=2024-01-01/hour=2", "day=2024-01-01/hour=3"]

    result = materialize(definitions, instance, PARTITIONS, partition="day=2024-01-01")
    assert reported_row_counts(instance, result, PARTITIONS) == {"day=2024-01-01": 13}
    latest = Metastore(str(tmp_path / "metastore")).table("sales").version
    assert latest.refresh_stats is not None
    assert latest.refresh_stats.fragments == 4, "exactly the files of the day"
    assert commit(definitions, instance) is None

    DeltaTable(tmp_path / "sales").delete("day = '2024-01-02'")
    assert reported_row_counts(instance, commit(definitions, instance), PARTITIONS) == {}
    assert instance.get_dynamic_partitions("sales_partitions") == ["day=2024-01-01"]
    result_with_rows = fetch_column_statistics(
        MaterializeResult(), "sales", config(tmp_path, "day"), partition="day=2024-01-01"
    )
    assert attached(result_with_rows)["dagster/partition_row_count"] == 13


class ByDay(MetastoreTranslator):
    def get_partitions_def(self, table: TableConfig) -> TablePartitions:
        return TablePartitions(DAYS)


def test_hours_are_a_day_of_the_project(tmp_path: Path, instance: DagsterInstance) -> None:
    write(tmp_path, "2024-01-01", {1: 3, 2: 5})
    definitions = build_metastore_definitions(config(tmp_path, "day"), translator=ByDay())
    assert reported_row_counts(instance, commit(definitions, instance), PARTITIONS) == {"2024-01-01": 8}
    result = materialize(definitions, instance, PARTITIONS, partition="2024-01-01")
    assert reported_row_counts(instance, result, PARTITIONS) == {"2024-01-01": 8}
    DeltaTable(tmp_path / "sales").delete("hour = 1")
    assert reported_row_counts(instance, commit(definitions, instance), PARTITIONS) == {"2024-01-01": 5}
    DeltaTable(tmp_path / "sales").delete("hour = 2")
    assert reported_row_counts(instance, commit(definitions, instance), PARTITIONS) == {"2024-01-01": 0}


def test_columns_that_do_not_come_first_are_refused(tmp_path: Path, instance: DagsterInstance) -> None:
    write(tmp_path, "2024-01-01", {1: 3})
    with pytest.raises(Failure, match=r"dagster\.partition_columns.*\(day, hour\)"):
        commit(build_metastore_definitions(config(tmp_path, "hour")), instance)
