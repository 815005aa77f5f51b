"""Publishing deletes files that are no longer referenced, in batches, without listing all files.

A profile is the statistics of a fragment (a data file with its deletes), a partition or the table. Pending profiles are
those that a refresh has saved before it publishes, so that another attempt can use them. They are cleared after a
version is published. A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.errors import VersionNotFoundError
from metastore_assets.store import entries as entries_module
from metastore_assets.store import garbage, versions
from metastore_assets.store.documents import Documents
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import RetiredFragment, Version
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import files, files_of, fragment, version
from tests.store.test_expire import Table

HALF_AN_HOUR = timedelta(hours=0.5)
AT_ONCE = timedelta(days=-1)


class Published(Table):
    """A table whose versions build on one another and drop outdated versions, as refreshes do.

    A commit saves the files of new fragments and makes all files an hour older afterwards.
    """

    def commit(self, *names: str, keep: int = 2, grace: timedelta = HALF_AN_HOUR) -> Version:
        base = self.versions.latest()
        number = 1 + (base.number if base else 0)
        retained_names = {entry.id for entry in base.fragments} if base else set()
        self.save(
            f"table-{number}",
            f"day-{number}",
            f"node-{number}",
            *(name for name in names if name not in retained_names),
        )
        self.versions.publish(replace(version(number), fragments=[fragment(name) for name in names]), base)
        self.versions.drop_outdated(number, keep, grace)
        self.pass_hour()
        return self.versions.read(number)

    def referenced_files(self) -> set[str]:
        """Return the files that at least one existing version references."""
        return {path for number in self.versions.numbers() for path in files_of(self.versions.read(number))}


@pytest.fixture(params=[0, 64])
def table(request: pytest.FixtureRequest, local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Published:
    """A table whose version documents list at most 0, or at most 64, unused files.

    The paths of more unused files are in a separate file, the (garbage) manifest.
    """
    monkeypatch.setattr(versions, "MAX_LISTED", request.param)
    return Published(local_store)


manifests = pytest.mark.parametrize("table", [0], indirect=True)
"""A mark for tests of manifests: documents list no unused files."""


def test_files_that_only_removed_versions_reference_are_deleted(table: Published) -> None:
    """After each commit, exactly the files of the retained versions exist."""
    for number in range(1, 9):
        table.commit("always", f"{number}", f"{number - 1}")
        # The version that the previous commit replaced is older than the grace period.
        assert table.versions.numbers() == list(range(max(1, number - 1), number + 1))
        for version_number in table.versions.numbers():
            assert set(table.versions.read(version_number).paths()) <= table.paths(), (
                "a file of a retained version is missing"
            )
        assert table.paths() == table.referenced_files() | ({"versions/oldest"} if number > 2 else set())
    with pytest.raises(VersionNotFoundError, match=r"version 6\b.*\b7-8"):
        table.versions.read(6)


def test_a_version_stays_for_the_grace_after_it_was_replaced(table: Published) -> None:
    for number in range(1, 6):
        table.commit(f"{number}", keep=1, grace=timedelta(hours=2.5))
    assert table.versions.numbers() == [2, 3, 4, 5], "version 2 was replaced two hours before, version 1 three"


def test_versions_are_listed_once_while_none_expires(table: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 4):
        table.commit(f"{number}", keep=1, grace=timedelta(days=1))
    assert table.versions.numbers() == [1, 2, 3]
    monkeypatch.setattr(Documents, "numbers", None)
    table.versions.drop_outdated(3, 1, timedelta(days=1))


def test_retired_fragments_are_retained(table: Published) -> None:
    """The files of a removed fragment's profile stay while a version lists the fragment as retired.

    So a restore can reuse the profile. They are deleted once no version lists the fragment.
    """
    table.commit("a", "b")
    for number in (2, 3, 4):
        base = table.versions.latest()
        retired_fragments = [RetiredFragment(2, fragment("a"))]
        table.save(f"table-{number}", f"day-{number}", f"node-{number}")
        table.versions.publish(replace(version(number), fragments=[fragment("b")], retired=retired_fragments), base)
        table.versions.drop_outdated(number, 1, AT_ONCE)
    assert table.versions.numbers() == [4]
    assert set(files("a").paths()) <= table.paths()
    table.commit("b", keep=1, grace=AT_ONCE)
    assert not set(files("a").paths()) & table.paths()
    assert set(files("b").paths()) <= table.paths()


def test_a_file_referenced_by_another_entry_stays(table: Published) -> None:
    """The files of a removed fragment's profile stay while a partition references them.

    A partition of one fragment shares the fragment's profile. The files are deleted after the partition is removed,
    too.
    """
    table.save("a")
    base = version(1)
    shared_entries = [replace(base.partitions[0], files=files("a"))]
    table.versions.publish(replace(base, fragments=[fragment("a")], partitions=shared_entries))
    table.versions.publish(replace(version(2), fragments=[], partitions=shared_entries), table.versions.read(1))
    table.versions.publish(replace(version(3), fragments=[], partitions=[]), table.versions.read(2))
    table.versions.drop_outdated(3, 2, AT_ONCE)
    assert table.versions.numbers() == [2, 3]
    assert set(files("a").paths()) <= table.paths()
    table.versions.drop_outdated(3, 1, AT_ONCE)
    assert not set(files("a").paths()) & table.paths()


@manifests
def test_many_files_are_deleted_in_batches(table: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unused files are deleted in batches of at most seven, also if the recorded progress is lost."""
    monkeypatch.setattr(garbage, "GARBAGE_BATCH", 7)
    table.commit(*(f"{i}" for i in range(20)))
    table.commit("x")
    batch_sizes: list[int] = []
    delete = ObjectStore.delete
    monkeypatch.setattr(
        ObjectStore, "delete", lambda self, paths: (batch_sizes.append(len(paths)), delete(self, paths))[1]
    )
    last = table.commit("y", keep=1)
    assert sorted(batch_sizes) == [1, 1, 7, 7]
    assert table.versions.numbers() == [2, 3]
    table.versions.objects.delete(["versions/oldest"])
    for _ in range(20):
        table.versions.drop_outdated(3, 1, AT_ONCE)
    assert max(batch_sizes) == 7
    assert set(files_of(last)) <= table.paths()


def test_nothing_is_deleted_after_the_folder_was_removed(table: Published) -> None:
    """The table's folder is removed while a refresh publishes.

    Dropping old versions is then no error and writes nothing.
    """
    table.versions.drop_outdated(5, 1, AT_ONCE)
    assert not table.paths()


@manifests
@pytest.mark.parametrize("rest", [b"", b"PAR1"])
def test_a_damaged_manifest_stops_no_deletion(table: Published, rest: bytes) -> None:
    """A damaged garbage manifest does not stop the deletion of old versions.

    `expire` deletes the unused files that the manifest named.
    """
    for number in range(1, 5):
        table.commit("always", f"{number}", keep=99)
    manifest = table.versions.read(3).garbage_manifest
    assert manifest is not None
    table.versions.objects.write(manifest, rest)
    table.pass_hour()
    table.expire(keep=3)
    assert table.versions.numbers() == [2, 3, 4]
    assert table.referenced_files() <= table.paths(), "all files of version 2 count, because its manifest is damaged"
    for _ in range(3):
        table.versions.drop_outdated(4, 1, AT_ONCE)
    assert table.versions.numbers() == [4]
    assert set(files("2").paths()) <= table.paths()
    table.expire()
    assert table.paths() == table.referenced_files() | {"versions/oldest"}


@manifests
def test_an_interrupted_deletion_is_completed(table: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the deletion of a version has begun, later calls complete it.

    A later call completes the deletion even if it must retain more versions than the first call.
    """
    monkeypatch.setattr(garbage, "GARBAGE_BATCH", 7)
    table.commit(keep=99)
    table.commit(*(f"{i}" for i in range(20)), keep=99)
    last = table.commit("x", keep=99)
    for _ in range(9):
        table.versions.drop_outdated(3, 2, AT_ONCE)
    assert table.versions.numbers() == [2, 3]
    assert table.referenced_files() | {"versions/oldest"} == table.paths()
    for keep in (1, *[2] * 9):
        table.versions.drop_outdated(3, keep, AT_ONCE)
        assert table.versions.numbers() == [3], "the version is deleted before its first file"
        assert set(last.paths()) <= table.paths()
    assert table.paths() == {*files_of(last), "versions/oldest"}


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"nonsense",
        b"{}",
        b"[]",
        b"null",
        b'{"oldest": Infinity, "portion": 0}',
        b'{"oldest": 99, "portion": 0}',
        b'{"oldest": 1, "portion": 99}',
    ]
    + [json.dumps({"oldest": oldest, "portion": 0}).encode() for oldest in (-1, "1", None, 2, 4)],
)
def test_wrong_progress_deletes_nothing_else(table: Published, state: bytes) -> None:
    """If the recorded progress of deletions is wrong, no referenced file is deleted.

    Some unused files may remain until `expire`.
    """
    for number in range(1, 6):
        table.commit("always", f"{number}", keep=99)
    table.versions.objects.write("versions/oldest", state)
    for _ in range(4):
        table.versions.drop_outdated(5, 2, AT_ONCE)
    assert set(table.versions.numbers()) >= {4, 5}
    assert table.referenced_files() <= table.paths()
    table.expire(keep=2)
    assert table.paths() == table.referenced_files() | {"versions/oldest"}


@pytest.mark.parametrize("removed_number", [1, 2, 3])
def test_versions_removed_by_hand_do_not_stop_deletions(table: Published, removed_number: int) -> None:
    for _ in range(6):
        table.commit("always", keep=99)
    table.versions.objects.delete([f"versions/{removed_number}.json"])
    for _ in range(5):
        table.versions.drop_outdated(6, 2, AT_ONCE)
    assert table.versions.numbers() == [5, 6]
    assert table.referenced_files() <= table.paths()


def test_a_damaged_version_does_not_stop_deletions(table: Published) -> None:
    for _ in range(6):
        table.commit("always", keep=99)
    table.versions.objects.write("versions/3.json", b"{")
    for _ in range(5):
        table.versions.drop_outdated(6, 2, AT_ONCE)
    assert table.versions.numbers() == [5, 6]
    assert table.referenced_files() <= table.paths()


def test_deletions_continue_after_expire(table: Published) -> None:
    for number in range(1, 7):
        table.commit("always", f"{number}", keep=4)
    table.expire(keep=1)
    assert table.versions.numbers() == [6]
    for number in range(7, 12):
        table.commit("always", f"{number}", keep=2)
    assert table.paths() == table.referenced_files() | {"versions/oldest"}


def test_files_of_pending_profiles_stay(table: Published) -> None:
    """The files of a pending profile stay, although no version references them any more.

    Another attempt may reference them.
    """
    table.commit("a")
    table.versions.save_pending([fragment("a")])
    other = VersionStore(ObjectStore(os.path.dirname(table.versions.objects.uri())), "orders")
    assert [entry.id for entry in other.pending()] == ["a"]
    table.versions.publish(replace(version(2), fragments=[]), table.versions.read(1))
    other.drop_outdated(2, 1, AT_ONCE)
    assert table.versions.numbers() == [2]
    assert set(files("a").paths()) <= table.paths()


def test_files_of_profiles_cleared_long_ago_are_deleted(table: Published) -> None:
    """Clearing pending profiles writes a marker beside their file.

    The file and the marker are deleted after the grace period.

    Pending profiles that were saved after the clearing stay.
    """
    versions = table.versions
    versions.save_pending([fragment("a")])
    table.commit("a")
    versions.clear_pending()
    versions.save_pending([fragment("waiting")])
    assert [entry.id for entry in versions.pending()] == ["waiting"]
    versions.drop_outdated(1, 2, timedelta(hours=9))
    assert len(table.paths("pending")) == 3
    table.pass_hour()
    versions.pending()
    versions.drop_outdated(1, 2, HALF_AN_HOUR)
    assert len(table.paths("pending")) == 1
    assert [entry.id for entry in versions.pending()] == ["waiting"]


def test_without_a_base_unreferenced_files_are_deleted_by_expire(table: Published) -> None:
    table.commit("a")
    table.save("table-2", "day-2", "node-2", "b")
    table.versions.publish(replace(version(2), fragments=[fragment("b")]))
    table.versions.drop_outdated(2, 1, AT_ONCE)
    assert table.versions.numbers() == [2]
    assert set(files("a").paths()) <= table.paths()
    table.expire(keep=1)
    assert not set(files("a").paths()) & table.paths()


@settings(max_examples=max(8, settings().max_examples // 50))
@given(st.lists(st.sets(st.integers(0, 9)), min_size=3, max_size=9), st.integers(1, 4), st.integers(1, 4))
def test_any_commits_retain_exactly_the_referenced_files(
    tmp_path_factory: pytest.TempPathFactory, commits: list[set[int]], keep: int, then: int
) -> None:
    """Fragments are removed, and added again with new files.

    In the end, exactly the referenced files exist.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries_module, "_REWRITE_BELOW", 1)
        patch.setattr(garbage, "GARBAGE_BATCH", 6)
        table = Published(ObjectStore(str(tmp_path_factory.mktemp("garbage"))))
        since: dict[int, int] = {}
        for number, fragments in enumerate(commits, 1):
            since = {one: since.get(one, number) for one in fragments}
            table.commit(*(f"{one}-{since[one]}" for one in since), keep=keep, grace=AT_ONCE)
            assert table.referenced_files() <= table.paths()
            assert table.versions.numbers()[-keep:] == list(range(max(1, number - keep + 1), number + 1))
        then = min(then, len(commits) - 1)
        for _ in range(40):
            table.versions.drop_outdated(len(commits), then, AT_ONCE)
        assert table.paths() - {"versions/oldest"} == table.referenced_files()
