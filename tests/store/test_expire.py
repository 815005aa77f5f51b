"""Expiry removes old versions and old files that nothing references.

It removes nothing else. The grace is the time for which replaced versions, unreferenced files and cleared profiles
stay. A purge publishes the newest version again without the profiles of removed data, and deletes older versions.

A profile is the statistics of a fragment (a data file with its deletes), a partition or the table. Pending profiles are
those that a refresh has saved before it publishes, so that another attempt can use them. They are cleared after a
version is published: a marker file beside the pending file says so. A version is the published statistics of a table at
one snapshot.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import CorruptionError, StoreError, VersionNotFoundError
from metastore_assets.pipeline import planning
from metastore_assets.store import expire, sorted_runs
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectInfo, ObjectStore
from metastore_assets.store.pending import remove_all
from metastore_assets.store.staged_versions import StagedVersions
from metastore_assets.store.version import RetiredFragment
from metastore_assets.store.versions import VersionStore
from tests.cli.run_command import run
from tests.store.sample_versions import files, files_of, fragment, version, write_small_segments

HOUR = timedelta(hours=1)


class Table:
    """The versions of one table on local disk, whose files tests make older."""

    def __init__(self, store: ObjectStore) -> None:
        self.versions = VersionStore(store, "orders")
        self.root = Path(self.versions.objects.uri())

    def paths(self, folder: str = "") -> set[str]:
        return {info.path for info in self.versions.objects.list(folder)}

    def pass_hour(self) -> None:
        """Make all files an hour older."""
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                modified_at = os.stat(path).st_mtime - 3600
                os.utime(path, (modified_at, modified_at))

    def save(self, *names: str) -> None:
        for name in names:
            for path in files(name).paths():
                self.versions.objects.write(path, b"profile")

    def publish(self, number: int, *fragments: str) -> None:
        self.save(f"table-{number}", f"day-{number}", f"node-{number}")
        new = replace(version(number), fragments=[fragment(name) for name in fragments])
        self.versions.publish(new)

    def expire(self, keep: int = 1, hours: float = 0.5) -> tuple[int, int]:
        counts = self.versions.expire(keep, timedelta(hours=hours))
        return counts.versions, counts.files


@pytest.fixture
def table(local_store: ObjectStore) -> Table:
    return Table(local_store)


def test_nothing_expires_from_nothing(table: Table) -> None:
    assert table.expire() == (0, 0)


def test_old_versions_and_files_that_only_they_reference_are_removed(table: Table) -> None:
    table.save("a", "b", "c")
    for number, names in enumerate([["a", "b"], ["b", "c"], ["c"]], 1):
        table.publish(number, *names)
        table.pass_hour()
    assert table.expire() == (2, 2 * 4 + 2 * 3 * 4 + 2 * 4), "entries, profiles of the table, fragments a and b"
    assert table.versions.numbers() == [3]
    latest = table.versions.latest()
    assert latest is not None
    assert table.paths() == set(files_of(latest))
    with pytest.raises(VersionNotFoundError, match=r"version 1\b.*\b3\b"):
        table.versions.read(1)
    assert table.expire() == (0, 0)


def test_the_requested_number_of_versions_is_retained(table: Table) -> None:
    for number in range(1, 6):
        table.publish(number)
        table.pass_hour()
    assert table.expire(keep=3)[0] == 2
    assert table.versions.numbers() == [3, 4, 5]
    assert [table.versions.read(number).number for number in (3, 4, 5)] == [3, 4, 5]
    with pytest.raises(ValueError, match=r"\bkeep\b.*\b1\b"):
        table.expire(keep=0)


def test_a_version_stays_for_the_grace_after_it_was_replaced(table: Table) -> None:
    """An old version expires only when its replacement is older than the grace.

    Readers may still use it until then.
    """
    table.publish(1)
    table.pass_hour()
    table.publish(2)
    assert table.expire(keep=1, hours=0.5) == (0, 0)
    table.pass_hour()
    assert table.expire(keep=1, hours=0.5)[0] == 1


def test_young_unreferenced_files_stay(table: Table) -> None:
    """Expiry deletes old unreferenced files, but no young ones.

    A running publisher may be about to reference a young file.
    """
    table.publish(1)
    table.save("old")
    table.pass_hour()
    table.save("young")
    assert table.expire() == (0, 4)
    assert set(files("young").paths()) < table.paths()
    assert not set(files("old").paths()) & table.paths()


def test_files_of_retired_fragments_stay(table: Table) -> None:
    table.save("gone")
    table.versions.publish(replace(version(1, fragments=0), retired=[RetiredFragment(1, fragment("gone"))]))
    table.pass_hour()
    table.expire()
    assert set(files("gone").paths()) <= table.paths()


def test_files_of_pending_profiles_stay_until_the_grace_after_clearing(table: Table) -> None:
    """The files of pending profiles stay until the grace has passed since the profiles were cleared.

    Another attempt may have read the profiles before they were cleared.
    """
    table.publish(1)
    table.save("a")
    table.versions.save_pending([fragment("a")])
    table.pass_hour()
    assert table.expire() == (0, 0)
    assert len(table.versions.pending()) == 1
    table.versions.clear_pending()
    assert table.expire() == (0, 0)
    assert set(files("a").paths()) <= table.paths()
    table.pass_hour()
    assert table.expire() == (0, 5), "four files and the pending file"
    assert table.paths("pending") == set()
    assert not set(files("a").paths()) & table.paths()


def test_cleared_profiles_that_a_version_took_over_stay(table: Table) -> None:
    table.save("a")
    table.versions.save_pending([fragment("a")])
    table.versions.pending()
    table.publish(1, "a")
    table.versions.clear_pending()
    table.pass_hour()
    assert table.expire() == (0, 1)
    assert set(files("a").paths()) <= table.paths()


@pytest.mark.parametrize("content", [b"", b"PAR1"])
def test_a_damaged_pending_file_stops_no_expiry(table: Table, content: bytes) -> None:
    """A damaged pending file stops no expiry.

    Unreferenced files are deleted, and files of another pending profile stay.
    """
    table.publish(1)
    table.versions.objects.write("pending/x.parquet", content)
    table.save("lost", "a")
    table.versions.save_pending([fragment("a")])
    table.pass_hour()
    assert table.expire() == (0, 4), "the files of `lost`"
    assert set(files("a").paths()) <= table.paths()


def test_profiles_that_are_saved_during_an_expiry_stay(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles that a refresh saves as pending during an expiry stay.

    At first, their files are referenced by a staged version, which a first refresh writes after a part of its
    fragments. The refresh saves the profiles, and then removes the staged version.
    """
    table.save("a")
    staged_versions = StagedVersions(table.versions)
    staged_versions.publish(replace(version(1), fragments=[fragment("a")]))
    table.pass_hour()
    scan = ObjectStore.scan

    def scan_and_give_up(self: ObjectStore, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from scan(self, prefix)
        if not prefix and staged_versions.numbers():
            table.versions.save_pending([fragment("a")])
            staged_versions.remove_documents()

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "scan", scan_and_give_up)
        table.expire()
    assert [entry.id for entry in table.versions.pending()] == [fragment("a").id]
    assert set(files("a").paths()) <= table.paths()


def test_files_of_a_version_that_is_published_during_an_expiry_stay(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expiry deletes no file of a version that a purge publishes meanwhile.

    When the expiry has listed version 1, but not read it yet, the purge publishes version 2 with the same files, and
    removes version 1.
    """
    table.save("a")
    table.publish(1, "a")
    table.pass_hour()
    numbers, others = Documents.numbers, [1]

    def numbers_before_others(self: Documents) -> list[int]:
        listed_numbers = numbers(self)
        if others and self.folder == "versions":
            if others[0]:
                others[0] -= 1  # This listing decides whether staged versions are deleted.
            else:
                others.clear()
                table.publish(2, "a")
                table.versions.objects.delete([self.path(1)])
        return listed_numbers

    with monkeypatch.context() as patch:
        patch.setattr(Documents, "numbers", numbers_before_others)
        table.expire()
    assert not others
    assert table.versions.numbers() == [2]
    assert set(files("a").paths()) <= table.paths()


def test_an_expiry_reports_a_version_whose_files_it_deleted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expiry that deleted files of a version fails.

    The version was published after the expiry had read all references. The error names the version, the number of
    deleted files, and the command that repairs the table.
    """
    delete_files = expire.delete_files

    def publish_before(objects: ObjectStore, files: Iterator[pa.Table]) -> tuple[int, int]:
        table.publish(2, "a", "b")
        return delete_files(objects, files)

    table.publish(1, "a")
    table.save("a", "b")
    table.pass_hour()
    monkeypatch.setattr(expire, "delete_files", publish_before)
    with pytest.raises(StoreError, match=r"version 2 was published .* deleted 4 of its files.*refresh orders --full"):
        table.expire()


def test_a_killed_purge_leaves_no_pending_file_without_its_marker(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed purge never deletes the marker of a pending file without the file.

    The marker says that the profiles in the file are cleared. Without it, they would be used again, although their data
    may be deleted. Object stores delete the objects of one request in any order: here the last one is deleted before
    the purge is killed.
    """
    table.versions.save_pending([fragment("a")])
    table.versions.clear_pending()
    delete = ObjectStore.delete

    def delete_last(self: ObjectStore, paths: list[str]) -> None:
        delete(self, paths[-1:])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete", delete_last)
        with pytest.raises(KeyboardInterrupt):
            remove_all(table.versions.objects)
    assert table.versions.pending() == []
    remove_all(table.versions.objects)
    assert table.paths("pending") == set()


def test_a_marker_without_its_file_is_removed(table: Table) -> None:
    """An expiry removes a marker file whose pending file does not exist any more.

    A killed expiry may have left the marker.
    """
    table.versions.objects.write("pending/x.parquet.cleared", b"")
    table.pass_hour()
    table.expire()
    assert table.paths() == set()


def test_unfinished_files_of_killed_writers_are_removed(table: Table) -> None:
    table.publish(1)
    before = table.paths()
    for age in range(2):
        path = table.root / "fragments" / f".{age:032x}.tmp"
        path.write_bytes(b"half")
        if age == 0:
            table.pass_hour()
    assert table.paths() == before, "hidden from listings"
    assert table.expire() == (0, 1)
    assert [path.name for path in table.root.rglob(".*")] == [f".{1:032x}.tmp"]


def test_files_of_a_failed_publish_are_removed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.publish(1)
    write = ObjectStore.write

    def refuse(self: ObjectStore, path: str, data: bytes, *, create: bool = False) -> None:
        if create:
            raise KeyboardInterrupt
        write(self, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "write", refuse)
        with pytest.raises(KeyboardInterrupt):
            table.publish(2)
    table.pass_hour()
    assert table.expire() == (0, 3 + 3 * 4), "entries of three kinds, and profiles"
    table.publish(2)


def test_nothing_is_deleted_if_a_retained_version_cannot_be_read(table: Table) -> None:
    """If a retained version cannot be read, expiry raises an error and deletes no unreferenced file.

    The files of the damaged version are unknown.
    """
    table.publish(1)
    table.save("old")
    table.pass_hour()
    table.publish(2)
    table.pass_hour()
    table.versions.objects.write("versions/2.json", b"{")
    with pytest.raises(CorruptionError, match=r"versions/2\.json"):
        table.expire(keep=2)
    assert set(files("old").paths()) <= table.paths()


def test_files_of_a_killed_verification_are_removed(table: Table) -> None:
    table.publish(1)
    table.pass_hour()
    table.publish(2)
    remaining_path = f"verify/{0:032x}/orders/fragments/{1:032x}.states.parquet"
    table.versions.objects.write(remaining_path, b"profile")
    table.pass_hour()
    table.expire()
    assert remaining_path not in table.paths()


def test_foreign_files_stay(table: Table) -> None:
    """Expiry does not delete files of other programs in the folder of a table's stored files.

    They are data files and the log of another table, some with names that resemble stored files.
    """
    foreign = {"a.parquet", "_delta_log/00000000000000000000.json", "p=1/part-0.parquet", "data/0-1.parquet"}
    # Such names are those of Lance's data files, and of partitioned files that PyArrow writes.
    foreign |= {f"data/{'01' * 12}{'af' * 13}.lance", f"de/{'0f' * 16}-0.parquet"}
    for path in foreign:
        table.versions.objects.write(path, b"data")
    table.publish(1)
    table.pass_hour()
    table.publish(2)
    table.pass_hour()
    table.expire()
    assert foreign <= table.paths()


def test_files_of_other_tables_stay(local_store: ObjectStore) -> None:
    orders, others = Table(local_store), VersionStore(local_store, "others")
    others.objects.write("profiles/x", b"")
    orders.publish(1)
    orders.save("old")
    orders.versions.expire(1, HOUR, now=datetime.now(UTC) + timedelta(days=1))
    assert [info.path for info in others.objects.list()] == ["profiles/x"]
    assert not set(files("old").paths()) & orders.paths()


@pytest.mark.s3
def test_old_versions_expire_on_s3(s3_store: ObjectStore) -> None:
    versions = VersionStore(s3_store, "orders")
    for number in range(1, 4):
        versions.publish(version(number))
    versions.objects.write(f"fragments/{0:032x}.old", b"")
    counts = versions.expire(1, HOUR, now=datetime.now(UTC) + timedelta(days=1))
    assert (counts.versions, counts.files) == (2, 9)
    version_3 = versions.latest()
    assert version_3 == version(3)
    assert {info.path for info in versions.objects.list()} <= set(files_of(version_3))


@given(st.data())
def test_any_number_of_unreferenced_files_is_removed(data: st.DataObject) -> None:
    """Expiry sorts files and references in temporary files.

    It leaves exactly the files of the newest version.
    """
    names = st.lists(st.text("abc", min_size=1, max_size=2), max_size=8, unique=True)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(sorted_runs, "_RUN_BYTES", data.draw(st.sampled_from([1, 200, 1 << 20])))
        patch.setattr(sorted_runs, "_BATCH_ROWS", data.draw(st.integers(1, 4)))
        patch.setattr(expire, "_LISTED_AT_ONCE", data.draw(st.integers(1, 9)))
        write_small_segments(patch)
        table = Table(ObjectStore(folder))
        table.save(*"abc", *data.draw(names))
        newest: set[str] = set()
        for number in range(1, data.draw(st.integers(1, 3)) + 1):
            fragments = data.draw(names)
            table.publish(number, *fragments)
            latest = table.versions.latest()
            assert latest is not None
            newest = set(files_of(latest))
            table.pass_hour()
        before = table.paths()
        _, count = table.expire()
        assert table.paths() == before & newest
        assert count == len([path for path in before - newest if not path.startswith("versions/")])


@pytest.mark.slow
def test_every_file_that_commands_store_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_metastore_file` recognizes all files that commands store, except versions and the history.

    An expiry never deletes a file that it does not recognize.
    """
    written_paths: set[str] = set()
    write, parquet_writer = ObjectStore.write, ObjectStore.parquet_writer

    def record(store: ObjectStore, path: str) -> None:
        written_paths.add(store.uri(path).removeprefix(f"{tmp_path}/root/t/"))

    def recorded_write(store: ObjectStore, path: str, *rest: Any, **options: Any) -> None:
        record(store, path)
        write(store, path, *rest, **options)

    def recorded_parquet_writer(store: ObjectStore, path: str, *rest: Any) -> Any:
        record(store, path)
        return parquet_writer(store, path, *rest)

    monkeypatch.setattr(ObjectStore, "write", recorded_write)
    monkeypatch.setattr(ObjectStore, "parquet_writer", recorded_parquet_writer)
    monkeypatch.setattr(planning, "FRAGMENTS_PER_LOT", 4)
    config = tmp_path / "metastore.yaml"
    policy = "{value_filter: on, by_partition: on, ranks: on}"
    config.write_text(f"root: root\nengine: auto\ntables: [{{name: t, uri: lake, columns: {{x: {policy}}}}}]\n")
    for commands in (["refresh t"], ["refresh t", "backfill t --yes", "verify t", "compact t", "purge t --before 2"]):
        for part in range(7):
            folder = tmp_path / "lake" / f"part={part}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"x": range(20 * part, 20 * part + 20)}), folder / f"{len(written_paths)}.parquet")
        for command in commands:
            assert run(*command.split(), config=config).exit_code == 0
            written_paths |= {info.path for info in ObjectStore(f"{tmp_path}/root/t").list()}
    folders = {path.partition("/")[0] for path in written_paths if not path.startswith("/")}
    others = {path for path in written_paths if not path.startswith(("/", "versions/", "history/"))}
    assert {path for path in others if not expire.is_metastore_file(path)} == set()
    assert folders >= {"entries", "fragments", "index", "nodes", "partitions", "pending", "staged", "table", "verify"}
