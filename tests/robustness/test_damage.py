"""Errors name damaged files of the Metastore, and a refresh with `--full` rebuilds them.

Answers that do not need the files are right. A fragment is a data file with the deletes that apply to it, and its
profile is the statistics of its rows. Merge nodes are stored merges of the profiles of some fragments or partitions.
A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from metastore_assets.errors import CorruptionError, StoreError
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.store.version_document import FORMAT_VERSION, stored_entries
from tests.pipeline.file_lake import Lake, assert_same, everything
from tests.robustness.refresh_assertions import assert_equals_scratch, copied, from_scratch, refreshed, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    """Overwrite some bytes of the values, but not the footer."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 3
    data[middle : middle + 16] = bytes(255 - byte for byte in data[middle : middle + 16])
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


DAMAGES: list[Callable[[Path], None]] = [cut, garble, empty, remove]


@dataclass(frozen=True)
class Prepared:
    """A table with two published versions and a commit after them.

    `after` has what a refresh from scratch stores after that commit.
    """

    lake: Lake
    after: dict[str, Any]


@pytest.fixture(scope="module")
def prepared_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    lake = Lake(tmp_path_factory.mktemp("damage"))
    for partition in (0, 0, 0, 1, 1, 1):
        lake.append(partition)
    refreshed(lake.config(), spark)
    lake.append(1)
    refreshed(lake.config(), spark)
    lake.append(0)
    return Prepared(lake, from_scratch(lake.config(), spark, lake.folder))


def profile_file(level: str, kind: str) -> Callable[[Lake], Path]:
    """Return a function that returns the path of one of a table's profile files.

    Args:
        level: Whose statistics the file has: "table", "partition" or "fragment".
        kind: The kind of file: "statistics", "histograms", "frequencies" or "states".
    """

    def find(lake: Lake) -> Path:
        """Return the path of this file in the newest version of the table."""
        store = versions(lake.config())
        version = store.latest()
        assert version is not None
        if level == "table":
            files = version.files
        elif level == "partition":
            (files,) = (entry.files for entry in version.partitions if entry.key == "part=0")
        else:
            files = next(entry.files for entry in version.fragments if entry.partition_key == "part=0")
        path = files.frequencies[0] if kind == "frequencies" else getattr(files, kind)
        return Path(store.objects.uri(path))

    return find


def entries_file(kind: str) -> Callable[[Lake], Path]:
    def find(lake: Lake) -> Path:
        store = versions(lake.config())
        latest = store.latest()
        assert latest is not None
        (path,) = next(entries.files.paths() for entries in stored_entries(latest) if entries.kind.name == kind)
        return Path(store.objects.uri(path))

    return find


def auxiliary_file(folder: str, suffix: str = "") -> Callable[[Lake], Path]:
    def find(lake: Lake) -> Path:
        store = versions(lake.config())
        latest = store.latest()
        assert latest is not None
        paths = [path for path in latest.auxiliary_files() if path.startswith(folder) and path.endswith(suffix)]
        return Path(store.objects.uri(paths[0]))

    return find


def document(lake: Lake) -> Path:
    return Path(lake.config().root) / "t" / "versions" / "2.json"


FILES: dict[str, Callable[[Lake], Path]] = {
    **{
        f"{level} {kind}": profile_file(level, kind)
        for level in ("partition", "table")
        for kind in ("statistics", "histograms", "frequencies")
        if (level, kind) != ("table", "frequencies")  # these are in its value counts
    },
    "fragment states": profile_file("fragment", "states"),
    **{f"entries {kind}": entries_file(kind) for kind in ("fragments", "partitions", "shared_files", "specs")},
    "fragment index": auxiliary_file("index/"),
    "value counts": auxiliary_file("value_counts/", ".json"),
    "document": document,
}
UNREAD = {"partition statistics", "partition histograms", "table histograms"}
"""Files that the next refresh replaces without reading them."""
PARTLY_READ = {"table statistics"}
"""Files of which the next refresh reads some columns, to decide about `auto` policies. It may overlook other damage."""
QUICK = {
    ("fragment states", garble),
    ("partition frequencies", cut),
    ("document", cut),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param(name, damage, marks=() if (name, damage) in QUICK else pytest.mark.long)
        for name in FILES
        for damage in DAMAGES
        if (name, damage) != ("document", remove)  # then that version does not exist
    ],
)
def test_a_damaged_file_is_named_and_a_full_refresh_rebuilds(
    prepared_lake: Prepared, spark: SparkSession, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    """A refresh that reads the damaged file names it, and a full refresh then rebuilds everything.

    A refresh that does not need the file publishes a correct version.
    """
    lake = copied(prepared_lake.lake, tmp_path)
    config = lake.config()
    path = FILES[name](lake)
    damage(path)
    is_unnoticed = name in UNREAD or (name in PARTLY_READ and damage is garble)
    if is_unnoticed:
        assert refreshed(config, spark).version == 3
        assert_same(everything(config), prepared_lake.after)
        return
    with pytest.raises(CorruptionError, match=re.escape(str(path))) as error_info:
        refreshed(config, spark)
    assert "--full" in str(error_info.value)
    assert Metastore(config.root).table("t", version=1).statistics(["id"])[0].value_count > 0, (
        "the previous version is readable"
    )
    result = refreshed(config, spark, request=RefreshRequest(full=True))
    assert result.fragments_profiled == len(lake.files())
    assert_same(everything(config), prepared_lake.after)
    assert refreshed(config, spark).published is False
    lake.append(1)
    refreshed(config, spark)
    assert_same(everything(config), from_scratch(config, spark, tmp_path))


@pytest.mark.parametrize("damage", [cut, pytest.param(remove, marks=pytest.mark.long)])
def test_damaged_nodes_are_named_and_a_full_refresh_rebuilds(
    spark: SparkSession, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """If the file that lists the merge nodes is damaged, the error names it.

    A full refresh then rebuilds everything. A partition with seven fragments or more has merge nodes. The partition of
    this test has eight fragments.
    """
    lake = Lake(tmp_path)
    for _ in range(8):
        lake.append(0)
    config = lake.config()
    refreshed(config, spark)
    lake.append(0)
    path = entries_file("nodes")(lake)
    damage(path)
    with pytest.raises(CorruptionError, match=re.escape(str(path))):
        refreshed(config, spark)
    refreshed(config, spark, request=RefreshRequest(full=True))
    assert_equals_scratch(config, spark, tmp_path)


def test_a_damaged_pending_profile_is_ignored(prepared_lake: Prepared, spark: SparkSession, tmp_path: Path) -> None:
    lake = copied(prepared_lake.lake, tmp_path)
    store = versions(lake.config())
    store.save_pending([])
    latest = store.latest()
    assert latest is not None
    store.save_pending(latest.fragments[:1])
    (path,) = (path for path in Path(lake.config().root).glob("t/pending/*.parquet") if not is_cleared(path))
    cut(path)
    assert refreshed(lake.config(), spark).version == 3
    assert_same(everything(lake.config()), prepared_lake.after)
    assert is_cleared(path)


def is_cleared(path: Path) -> bool:
    return path.with_name(f"{path.name}.cleared").exists()


@pytest.mark.parametrize("full", [False, True])
def test_a_version_of_a_newer_release_is_not_overwritten(
    prepared_lake: Prepared, spark: SparkSession, tmp_path: Path, full: bool
) -> None:
    """A refresh fails and publishes nothing if the newest version has a later format version.

    This holds even with `--full`. Opening the newest version fails, too. The older version stays readable.
    """
    lake = copied(prepared_lake.lake, tmp_path)
    path = document(lake)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": FORMAT_VERSION + 1}))
    message = rf"{re.escape(str(path))}.*format_version.*\b{FORMAT_VERSION + 1}\b.*\bupgrade\b"
    with pytest.raises(StoreError, match=message):
        refreshed(lake.config(), spark, request=RefreshRequest(full=full))
    assert versions(lake.config()).numbers() == [1, 2]
    with pytest.raises(StoreError, match=message):
        Metastore(lake.config().root).table("t")
    assert Metastore(lake.config().root).table("t", version=1).count().value == 300
