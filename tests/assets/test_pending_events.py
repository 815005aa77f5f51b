"""The events to report for a version, computed by comparing it with what was reported before.

The content id of a partition is a digest of what determines its statistics.

A version is the published statistics of a table at one snapshot. A reported state is what Dagster's events show of the
table. An entry is a row that a version stores about a partition. A root is the folder with all stored state.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.assets.names import KINDS
from metastore_assets.assets.pending_events import (
    PendingEvents,
    add_selected_events,
    changed_kinds,
    find_pending_events,
    remove_events_of_other_runs,
)
from metastore_assets.assets.reported_state import ReportedState
from metastore_assets.store import entries as entries_module
from metastore_assets.store.entries import PARTITIONS, EntryKind, StoredEntries
from metastore_assets.store.entry_changes import EntryChanges, write_entries
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import PartitionEntry, ProfileFiles, ValueCountFiles, Version


def files(name: str, histograms: bool = True, parts: int = 1) -> ProfileFiles:
    return ProfileFiles(f"{name}.s", f"{name}.h" if histograms else "", tuple(f"{name}.f{i}" for i in range(parts)))


def version(
    number: int,
    table: str,
    partitions: dict[str, tuple[int, ProfileFiles]],
    snapshot: str = "s",
    columns: tuple[str, ...] = ("day",),
) -> Version:
    """Return a version.

    Args:
        number: Its number.
        table: The beginning of the names of the table's files.
        partitions: By partition key, the number of the version that computed the partition, and its files. The
            content id of a partition is `c` followed by this number.
        snapshot: The id of the snapshot.
        columns: The partition columns.
    """
    entries = [
        PartitionEntry(key, f"c{version_number}", 1, 1, 1, file_map, version_number)
        for key, (version_number, file_map) in partitions.items()
    ]
    now = datetime(2024, 1, 1, tzinfo=UTC)
    empty = pa.schema([])
    return Version(
        number,
        "t",
        "files",
        snapshot,
        None,
        now,
        empty,
        columns,
        0,
        0,
        "c",
        files(table),
        "1",
        "l",
        {},
        (),
        entries,
        value_counts=ValueCountFiles(f"{table}.l", (f"{table}.f0",)),
    )


def reported(version: Version | None, since: dict[str, int] | None = None) -> ReportedState:
    """Return the reported state after complete reports of all versions up to a version.

    Args:
        version: The last reported version; None before the first.
        since: Partitions that were reported after that version, each with the number of the version reported for it.
    """
    return ReportedState(
        version, {entry.key: entry.content_id for entry in version.partitions} if version else {}, since or {}
    )


def find_events(before: ReportedState, now: Version) -> tuple[list[str], tuple[str, ...]]:
    changes = find_pending_events(before, now)
    return [entry.key for entry in changes.partitions], changes.table


def test_everything_is_reported_the_first_time() -> None:
    assert find_events(ReportedState(), version(1, "t1", {"a": (1, files("a1")), "b": (1, files("b1"))})) == (
        ["a", "b"],
        KINDS,
    )


def test_only_partitions_computed_since_the_last_report_are_reported() -> None:
    before = version(1, "t1", {"a": (1, files("a1")), "b": (1, files("b1"))})
    now = version(3, "t3", {"a": (1, files("a1")), "b": (2, files("b2")), "c": (3, files("c3"))})
    assert find_events(reported(before), now) == (["b", "c"], KINDS)


def test_a_restored_partition_is_reported() -> None:
    """A partition is reported if the last reported version does not have it.

    It was removed and restored, so an old event of it has the same content.
    """
    now = version(3, "t3", {"a": (1, files("a1"))})
    assert find_events(ReportedState(version(2, "t2", {}), {"a": "c1"}), now)[0] == ["a"]


def test_other_files_with_equal_content_are_reported() -> None:
    """A partition that was recomputed with equal content is reported if its files have other names.

    Of two recomputed partitions, only the one with other files is reported.
    """
    before = version(1, "t1", {"a": (1, files("a1")), "b": (1, files("b1"))})
    now = version(2, "t2", {"a": (2, files("a2")), "b": (2, files("b1"))})
    assert find_events(ReportedState(before, {"a": "c2", "b": "c2"}), now)[0] == ["a"]


def test_an_interrupted_report_continues() -> None:
    """After an interruption, a reported partition is reported again only if it was recomputed since.

    A later version, or a version under another root, may have recomputed the partition.
    """
    first = version(1, "t1", {key: (1, files(f"{key}1")) for key in "abc"})
    assert find_events(ReportedState(None, {"a": "c1", "b": "c1"}, {"a": 1, "b": 1}), first) == (["c"], KINDS)
    third = version(
        3, "t3", {"a": (2, files("a2")), "b": (3, files("b3")), "c": (1, files("c1")), "d": (2, files("d2"))}
    )
    cut = ReportedState(first, {"a": "c2", "b": "c2", "c": "c1"}, {"a": 2, "b": 2})
    assert find_events(cut, third)[0] == ["b", "d"]
    assert find_events(ReportedState(None, {"a": "other"}, {"a": 9}), first)[0] == ["a", "b", "c"]
    again = version(2, "t2", {"a": (2, files("a2"))})
    assert find_events(ReportedState(None, {"a": "c2"}, {"a": 1}), again)[0] == ["a"], "the same rows, in other files"


def test_events_missing_from_another_run_are_reported() -> None:
    """A partition is reported if its last event has older content than the last reported version.

    Another run should have reported the newer content of the partition, but has not. No other partition is reported.
    """
    now = version(2, "t2", {"a": (2, files("a2")), "b": (2, files("b2"))})
    assert find_events(ReportedState(now, {"a": "c2", "b": "c1"}), now) == (["b"], ())


def test_a_table_without_partitions_reports_no_partition() -> None:
    assert find_events(ReportedState(), version(1, "t1", {"all": (1, files("a1"))}, columns=())) == ([], KINDS)


def test_kinds_without_an_asset_are_not_reported() -> None:
    changes = find_pending_events(
        ReportedState(), version(1, "t1", {"a": (1, files("a1"))}), ("histograms", "statistics")
    )
    assert changes.table == ("histograms", "statistics")


def test_only_kinds_with_other_files_are_reported() -> None:
    """Only kinds of statistics whose files changed are reported.

    A kind, such as histograms, did not change if it has no file or the same files. Ranks are stored in the files of
    frequencies, so both kinds change together.
    """
    before = files("a1")
    assert changed_kinds(before, ProfileFiles("a2.s", "", ("a1.f0",))) == ("statistics",)
    assert changed_kinds(before, ProfileFiles("a1.s", "a1.h", ("a2.f0", "a2.f1"))) == ("frequencies", "ranks")
    assert changed_kinds(None, files("a", histograms=False)) == ("frequencies", "ranks", "statistics")


def test_a_version_is_reported_even_if_no_file_changed() -> None:
    """If only the snapshot changed, just the table's statistics are reported.

    Their event shows the snapshot.
    """
    before = version(1, "t1", {"a": (1, files("a1"))})
    assert find_events(reported(before), version(2, "t1", {"a": (1, files("a1"))}, "s2")) == ([], ("statistics",))
    assert find_events(reported(before), before) == ([], ())


def test_selected_assets_are_reported_even_if_unchanged() -> None:
    """The selected partitions are reported in the order of the version, changed or not.

    Changed partitions that another run reports are left out.
    """
    before = version(1, "t1", {"a": (1, files("a1")), "b": (1, files("b1")), "c": (1, files("c1"))})
    now = version(2, "t1", {"a": (2, files("a2")), "b": (1, files("b1")), "c": (2, files("c2"))})
    pending = find_pending_events(reported(before), now)
    assert keys(pending) == ["a", "c"]
    selected_events = add_selected_events(
        remove_events_of_other_runs({"a"}, pending), now, ["c", "b", "removed"], ["frequencies"]
    )
    assert keys(selected_events) == ["b", "c"]
    assert selected_events.table == ("frequencies",), "the last run reports the rest"
    assert remove_events_of_other_runs({"b"}, pending) == pending


def keys(changes: PendingEvents) -> list[str]:
    return [entry.key for entry in changes.partitions]


Event = tuple[str, int, str]
"""The report of a partition: its key, the version's number, the content id."""


@dataclass
class Log:
    """A model of Dagster's event log."""

    events: list[Event | int]
    """A number is the report of a version as a whole."""

    def reported_state(self, versions: dict[int, Version]) -> ReportedState:
        """Return the reported state that follows from the events."""
        last = max((at for at, event in enumerate(self.events) if isinstance(event, int)), default=None)
        number = None if last is None else self.events[last]
        since = self.events if last is None else self.events[last + 1 :]
        return ReportedState(
            versions[number] if isinstance(number, int) else None,
            {event[0]: event[2] for event in self.events if not isinstance(event, int)},
            {event[0]: event[1] for event in since if not isinstance(event, int)},
        )

    def report(self, versions: dict[int, Version], cut: int | None = None, others: Collection[str] = ()) -> None:
        """Report the newest version.

        Args:
            versions: All versions by number.
            cut: The number of partitions after which the report is interrupted; None for a complete report.
            others: Partitions that other runs report. They are left out.
        """
        now = versions[max(versions)]
        changes = remove_events_of_other_runs(others, find_pending_events(self.reported_state(versions), now))
        self.events += [(entry.key, now.number, entry.content_id) for entry in changes.partitions[:cut]]
        if cut is None and "statistics" in changes.table:
            self.events.append(now.number)


FILES = st.sampled_from("xyz").map(files)
ENTRIES = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.sampled_from("uv"), st.integers(1, 4), FILES))
STATES = st.tuples(
    st.none() | st.tuples(st.integers(1, 4), ENTRIES),
    st.dictionaries(st.sampled_from("abcde"), st.sampled_from("uvw")),
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 4)),
    st.frozensets(st.sampled_from("abcde"), max_size=2),
)


def with_entries(number: int, entries: dict[str, tuple[str, int, ProfileFiles]]) -> Version:
    partitions = [
        PartitionEntry(key, content, 1, 1, 1, file_map, version_number)
        for key, (content, version_number, file_map) in entries.items()
    ]
    return replace(version(number, f"t{number}", {}), partitions=partitions)


def stored_partitions(
    objects: ObjectStore, version: Version, base: StoredEntries[PartitionEntry] | None
) -> StoredEntries[PartitionEntry]:
    changes = EntryChanges.between(PARTITIONS, base, version.partitions)
    return StoredEntries(PARTITIONS, objects, write_entries(objects, changes, allow_step=True, may_merge=True))


@given(STATES, ENTRIES, st.booleans())
def test_any_state_is_compared_with_any_version(
    tmp_path_factory: pytest.TempPathFactory,
    state: tuple[tuple[int, dict[str, Any]] | None, dict[str, str], dict[str, int], frozenset[str]],
    entries: dict[str, tuple[str, int, ProfileFiles]],
    is_stored: bool,
) -> None:
    """The partitions to report equal those that a check of each partition by itself finds.

    This holds for any earlier reports, and for versions in memory and stored ones.
    """
    reported_version = None if state[0] is None else with_entries(*state[0])
    now = with_entries(5, entries)
    if is_stored:
        objects, base = ObjectStore(str(tmp_path_factory.mktemp("root"))), None
        if reported_version is not None:
            base = stored_partitions(objects, reported_version, None)
            reported_version = replace(reported_version, partitions=base)
        now = replace(now, partitions=stored_partitions(objects, now, base))
    reported_of = find_pending_events(ReportedState(reported_version, state[1], state[2], (), state[3]), now).partitions
    before = {} if state[0] is None else state[0][1]
    expected = []
    for key, (content, published_in, rows) in sorted(entries.items()):
        if (
            state[1].get(key) != content
            or key in state[3]
            or (
                state[2].get(key, 0) < published_in
                and (
                    key not in before
                    or (published_in > (state[0] or (0,))[0] and before[key][2].statistics != rows.statistics)
                )
            )
        ):
            expected.append(key)
    assert [entry.key for entry in reported_of] == expected
    assert all((entry.content_id, entry.version, entry.files) == entries[entry.key] for entry in reported_of)


def test_a_report_reads_the_entries_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If few of a thousand entries changed since the last report, the next report decodes at most 12.

    If the entries of the last reported version are deleted, all entries of the new version are compared.
    """
    objects, names = ObjectStore(str(tmp_path)), [f"p{at:04}" for at in range(1000)]
    first = with_entries(1, {name: ("u", 1, files(name)) for name in names})
    first = replace(first, partitions=stored_partitions(objects, first, None))
    again = {"p0007": ("u", 2, files("new")), "p0100": ("v", 2, files("p0100")), "p1000": ("v", 2, files("p1000"))}
    now = with_entries(2, {name: ("u", 1, files(name)) for name in names if name != "p0500"} | again)
    base = first.partitions
    assert isinstance(base, StoredEntries)
    now = replace(now, partitions=stored_partitions(objects, now, base))
    decoded_counts: list[int] = []
    decode = entries_module.decode_entries

    def counted(kind: EntryKind[PartitionEntry], rows: pa.Table) -> list[PartitionEntry]:
        decoded_counts.append(len(rows))
        return decode(kind, rows)

    monkeypatch.setattr(entries_module, "decode_entries", counted)
    state = ReportedState(first, {**dict.fromkeys(names, "u"), "p0003": "lost"})
    pending = find_pending_events(state, now)
    assert keys(pending) == ["p0003", *again]
    assert keys(add_selected_events(pending, now, ["p0999"], [])) == ["p0003", "p0007", "p0100", "p0999", "p1000"]
    assert sum(decoded_counts) <= 12
    rebuilt = with_entries(3, {name: ("u", 3, files(f"{name}.3")) for name in names})
    rebuilt = replace(rebuilt, partitions=stored_partitions(objects, rebuilt, base))
    objects.delete(base.files.paths())
    expired_version = replace(first, partitions=StoredEntries(PARTITIONS, objects, base.files))
    assert keys(find_pending_events(ReportedState(expired_version, dict.fromkeys(names, "u")), rebuilt)) == names


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"), st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["same", "new", "removed"]))
        ),
        st.tuples(st.just("cut"), st.integers(0, 3)),
        st.tuples(st.just("others"), st.sets(st.sampled_from("abcd"))),
        st.tuples(st.just("report"), st.none()),
    ),
    max_size=12,
)


@given(STEPS)
def test_after_a_complete_report_dagster_shows_the_version(steps: list[tuple[str, Any]]) -> None:
    """After a complete report, each partition's last event matches the version, and none is pending.

    Before that, versions are published at random. Reports of them are complete, are interrupted, or leave out
    partitions of other runs, which never start.
    """
    entries: dict[str, tuple[int, str]] = {}
    versions: dict[int, Version] = {}
    log = Log([])
    for what, given_with in [*steps, ("publish", {"a": "new"}), ("report", None), ("report", None)]:
        if what == "publish":
            number = len(versions) + 1
            for key, how in given_with.items():
                content = entries[key][1] if key in entries and how == "same" else f"{key}{number}"
                entries[key] = (number, content)
                if how == "removed":
                    del entries[key]
            new_version = version(
                number,
                f"t{number}",
                {key: (number_of_key, files(f"{key}{number_of_key}")) for key, (number_of_key, _) in entries.items()},
            )
            parts = [replace(entry, content_id=entries[entry.key][1]) for entry in new_version.partitions]
            versions[number] = replace(new_version, partitions=parts)
        elif versions:
            log.report(
                versions,
                cut=given_with if what == "cut" else None,
                others=given_with if what == "others" else (),
            )
    shown_events = {event[0]: event[1:] for event in log.events if not isinstance(event, int)}
    for entry in versions[max(versions)].partitions:
        number, content = shown_events[entry.key]
        assert content == entry.content_id
        (then,) = [each for each in versions[number].partitions if each.key == entry.key]
        assert then.files == entry.files
    assert find_pending_events(log.reported_state(versions), versions[max(versions)]) == PendingEvents((), ())
