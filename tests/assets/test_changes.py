"""What is told of a version: a comparison of two, as data in and data out."""

from datetime import UTC, datetime

import pyarrow as pa

from metastore_assets.assets.changes import changed_kinds, changes_between, with_selected
from metastore_assets.store.manifest import ListFiles, PartitionEntry, ProfileFiles, Version


def files(name: str, histograms: bool = True, parts: int = 1) -> ProfileFiles:
    return ProfileFiles(f"{name}.s", f"{name}.h" if histograms else "", tuple(f"{name}.f{i}" for i in range(parts)))


def version(number: int, table: str, partitions: dict[str, tuple[int, ProfileFiles]], snapshot: str = "s") -> Version:
    entries = [PartitionEntry(key, "c", 1, 1, 1, own, made) for key, (made, own) in partitions.items()]
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
        (),
        0,
        0,
        "c",
        files(table),
        "1",
        "l",
        {},
        (),
        entries,
        lists=ListFiles(f"{table}.l", (f"{table}.f0",)),
    )


def told(before: Version | None, now: Version) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    changes = changes_between(before, now)
    return {entry.key: kinds for entry, kinds in changes.partitions}, changes.table


ALL = ("histograms", "frequencies", "statistics")


def test_everything_is_told_the_first_time() -> None:
    assert told(None, version(1, "t1", {"a": (1, files("a1")), "b": (1, files("b1"))})) == ({"a": ALL, "b": ALL}, ALL)


def test_only_partitions_computed_since_are_told() -> None:
    before = version(1, "t1", {"a": (1, files("a1")), "b": (1, files("b1"))})
    now = version(3, "t3", {"a": (1, files("a1")), "b": (2, files("b2")), "c": (3, files("c3"))})
    assert told(before, now) == ({"b": ALL, "c": ALL}, ALL)


def test_a_partition_that_came_back_is_told() -> None:
    """Gone in the version that was told last, so Dagster has forgotten it."""
    before = version(2, "t2", {})
    now = version(3, "t3", {"a": (1, files("a1"))})
    assert told(before, now)[0] == {"a": ALL}


def test_only_kinds_with_other_files_are_told() -> None:
    """A kind without a file, and one whose files were taken over, did not change."""
    before = files("a1")
    assert changed_kinds(before, ProfileFiles("a2.s", "", ("a1.f0",))) == ("statistics",)
    assert changed_kinds(before, ProfileFiles("a1.s", "a1.h", ("a2.f0", "a2.f1"))) == ("frequencies",)
    assert changed_kinds(None, files("a", histograms=False)) == ("frequencies", "statistics")


def test_a_version_is_told_even_when_no_file_changed() -> None:
    """Its snapshot did: the table's statistics are what says so."""
    before = version(1, "t1", {"a": (1, files("a1"))})
    assert told(before, version(2, "t1", {"a": (1, files("a1"))}, "s2")) == ({}, ("statistics",))
    assert told(before, before) == ({}, ())


def test_what_is_selected_is_told_changed_or_not() -> None:
    """In the order of the version, without doubles."""
    before = version(1, "t1", {"a": (1, files("a1")), "b": (1, files("b1")), "c": (1, files("c1"))})
    now = version(2, "t1", {"a": (1, files("a1")), "b": (1, files("b1")), "c": (2, files("c2"))})
    changes = with_selected(changes_between(before, now), now, {"statistics": ["c", "b"]}, ["frequencies"])
    assert [(entry.key, kinds) for entry, kinds in changes.partitions] == [("b", ("statistics",)), ("c", ALL)]
    assert changes.table == ("frequencies", "statistics")
