"""Current code reads the roots of every earlier file format, or names their format in an error.

A root is a folder with stored statistics. `writing.py` describes the archived roots.

A profile is the statistics of the columns in a set of rows. The value counts of a column are its distinct values with
the frequency of each.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from metastore_assets import open_table
from metastore_assets.store.version_document import FORMAT_VERSION, OlderFormatError
from tests.golden.writing import FIRST_ARCHIVES, ROOTS, TABLES, describe_files, read_archive, read_values, write_root

_ARCHIVES = sorted(ROOTS.glob("format_*.tar.xz"))
_RAISE = (
    "stored files changed, and FORMAT_VERSION is still {current}: if older code misreads the new files, or this code "
    "the old ones, raise FORMAT_VERSION in metastore_assets/store/version_document.py. Then run `make golden`, and "
    'write what changed under "Stored files" in CHANGELOG.md.\n{changes}'
)


def format_of(archive: Path) -> int:
    return int(archive.name.removeprefix("format_").removesuffix(".tar.xz"))


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archived roots of the current file format: a folder with one subfolder per table format."""
    archive = ROOTS / f"format_{FORMAT_VERSION}.tar.xz"
    assert archive.exists(), f"FORMAT_VERSION is {FORMAT_VERSION}, and there is no {archive.name}: run `make golden`"
    return read_archive(archive, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def new_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Delta table's root as the code writes it now."""
    return write_root("delta", tmp_path_factory.mktemp("new"))


def check_answers(root: Path) -> None:
    """Compare lookups with numbers that were counted by hand.

    The table has the ids 10 to 69, one row each. The first 20 rows are of the first day. A half of the texts is Oslo.
    """
    table = open_table(str(root), "t")
    assert table.count().value == 60
    by_column = {column.column: column for column in table.statistics()}
    assert set(by_column) == {"id", "text", "day"}
    assert (by_column["id"].null_count, by_column["id"].distinct_count, by_column["id"].mean) == (0, 60, 39.5)
    assert (by_column["text"].distinct_count, by_column["text"].total_length) == (3, 240)
    assert pairs(table.top("text", n=3)) == [("Oslo", 30), ("Bari", 15), ("Lyon", 15)]
    assert pairs(table.top("day", n=3)) == [("2024-01-02", 40), ("2024-01-01", 20)]
    if table.version.partition_columns:  # Lance tables have no partitions
        first = table.statistics(["id"], partition="day=2024-01-01")
        assert [column.distinct_count for column in first] == [20]
    assert table.prune("id = 65").fragment_count == 1
    assert table.prune("id >= 70").fragment_count == 0
    estimate = table.estimate("text = 'Oslo' and day = '2024-01-02'")
    assert estimate.lower <= 20 <= estimate.upper


def pairs(answer: Any) -> list[tuple[Any, int]]:
    return [(getattr(value, "as_py", lambda value=value: value)(), count) for value, count in answer]


@pytest.mark.parametrize("kind", TABLES)
def test_lookups_of_the_current_format(golden: Path, kind: str) -> None:
    check_answers(golden / kind)


def test_older_versions_of_a_root_are_read(golden: Path) -> None:
    """Version 1 of the Delta root has the ids 0 to 59, and can still be read beside the later versions."""
    table = open_table(str(golden / "delta"), "t", version=1)
    assert table.count().value == 60
    assert pairs(table.top("day", n=2)) == [("2024-01-01", 30), ("2024-01-02", 30)]
    assert table.prune("id = 5").fragment_count == 1
    assert open_table(str(golden / "delta"), "t", version=2).count().value == 60


@pytest.mark.parametrize(
    ("archive", "kind"),
    [
        pytest.param(archive, kind, id=f"{archive.name}-{kind}")
        for archive in _ARCHIVES
        for kind in TABLES
        if format_of(archive) >= FIRST_ARCHIVES.get(kind, 0)
    ],
)
def test_every_earlier_root_is_read_or_refused_by_name(archive: Path, kind: str, tmp_path: Path) -> None:
    """Roots of the current file format, and roots that releases from 1.0 on wrote, are read.

    Any other root is read, or refused with an error that names its file format and advises a refresh.
    """
    root = read_archive(archive, tmp_path) / kind
    if format_of(archive) == FORMAT_VERSION or not written_before_1_0(root):
        check_answers(root)
        return
    try:
        check_answers(root)
    except OlderFormatError as error:
        message = str(error)
    else:
        return
    assert re.search(rf"versions/\d\.json: format_version\b.*\b{format_of(archive)}\b.*\brefresh\b", message)


def written_before_1_0(root: Path) -> bool:
    (document, *_) = (root / "t" / "versions").glob("*.json")
    return re.search(r'"code_version": *"0\.', document.read_text()) is not None


def test_stored_files_are_those_of_the_current_format(golden: Path, new_root: Path) -> None:
    """A new root has the same files, columns and keys as the archived root of the current file format."""
    before, now = describe_files(golden / "delta"), describe_files(new_root)
    changes = [
        f"{name}: {before.get(name)} in tests/golden, {now.get(name)} now"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    assert not changes, _RAISE.format(current=FORMAT_VERSION, changes="\n".join(changes))


def test_stored_values_are_those_of_the_current_format(golden: Path, new_root: Path) -> None:
    """A new root has the profiles and value counts of the archived root of the current file format.

    The test fails if an encoding, a hash or a sketch changes, even if the files have the same columns.
    """
    before, now = read_values(golden / "delta"), read_values(new_root)
    changes = [f"{name}: other values" for name in sorted(before) if before[name] != now.get(name)]
    assert not changes, _RAISE.format(current=FORMAT_VERSION, changes="\n".join(changes))


def test_the_comparison_notices_a_changed_column_and_a_changed_value(new_root: Path, tmp_path: Path) -> None:
    """The comparisons of the two tests above detect a renamed column and a changed value."""
    (statistics, *_) = (new_root / "t" / "table").glob("*.statistics.parquet")
    table = pq.read_table(statistics)
    copy = tmp_path / "t" / "table" / statistics.name
    copy.parent.mkdir(parents=True)
    pq.write_table(table.replace_schema_metadata(None), copy)
    described, values = describe_files(tmp_path), read_values(tmp_path)
    pq.write_table(table.rename_columns({"null_count": "nulls"}).replace_schema_metadata(None), copy)
    renamed = describe_files(tmp_path)
    assert {name.rpartition(" ")[2] for name in described.keys() ^ renamed.keys()} == {"null_count", "nulls"}
    changed = table.set_column(table.column_names.index("null_count"), "null_count", [[1] * table.num_rows])
    pq.write_table(changed.replace_schema_metadata(None), copy)
    assert describe_files(tmp_path) == described
    assert [name.rpartition(" ")[2] for name in values if values[name] != read_values(tmp_path)[name]] == ["null_count"]
