"""The requests and bytes of a commit are bounded, whatever the size of the table.

Time is not measured.

A version is the published statistics of a table at one snapshot. A root is the folder with all stored state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import scale_requests, scale_run, scale_tables
from benchmarks.scale_tables import SyntheticTable
from metastore_assets.storage.location import Location
from metastore_assets.store.objects import ObjectStore
from tests.store.sample_versions import forbid_complete_reads

SIZES = (10_000, 50_000)
"""Numbers of files of the tables."""
FIRST_REQUESTS = {"delta": 22, "iceberg": 24, "hudi": 24}
"""Number of requests of the first commit that adds a file to a table with 10,000 files. Ranges of an object are one."""
REQUESTS = 38
"""Maximum number of requests of a commit that adds a file, to a table with deltas of earlier commits."""
REQUESTS_PER_PARTITION = 10
BYTES = 600_000
"""Maximum number of bytes that a commit of a file reads and writes. The document of the version takes 20,000."""
BYTES_PER_PARTITION = 120_000

MAX_OF_COMMITS = {
    "one file": (30, 100_000),
    "100 files in 100 partitions": (150, 800_000),
    "delete a partition": (38, 220_000),
    "compact 1,000 files to 10": (48, 450_000),
    "restore": (46, 600_000),
}
"""Maximum numbers of requests and bytes of each kind of commit to a table with 10,000 files."""
MAX_OF_REPEATED_COMMITS = {
    "one file": (72, 1_100_000),  # 51 to 61 requests, depending on random ids
    "100 files in 100 partitions": (60, 3_300_000),
    "delete a partition": (55, 2_800_000),
}
"""Maximum numbers as in `MAX_OF_COMMITS`, for a table whose column `id` has the policy `frequencies: repeated`."""
MAX_OF_ANY_COMMIT = (480, 3_200_000)
"""Maximum numbers of requests and bytes of a commit to a table with a million files."""
TICK_REQUESTS = 6
"""Maximum number of requests of a sensor's tick."""


@pytest.fixture(scope="module", autouse=True)
def small_benchmark() -> Iterator[None]:
    """Make the benchmark `scale` quicker: no warm-up, and few files in the first refresh.

    A copy replaces the dictionary `COMMITS` of the benchmark, so that tests can change it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scale_run, "MAX_REFRESHED", min(SIZES))
        patch.setattr(scale_run, "_warm_up", lambda folder, kind: None)
        patch.setattr(scale_tables, "COMMITS", dict(scale_tables.COMMITS))
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, small_benchmark: None) -> dict[int, Path]:
    """{number of files: folder with a Delta table of this size}.

    The first version of the table's statistics is published.
    """
    folders = {count: tmp_path_factory.mktemp(f"files{count}") for count in SIZES}
    for count, folder in folders.items():
        scale_run.build(folder, "delta", count)
    return folders


def count_requests(numbers: Mapping[str, float]) -> float:
    """Return the number of requests of a measured refresh, to the root and to the table."""
    return sum(numbers[f"{step} {place} requests"] for step in ("plan", "publish") for place in ("root", "table"))


def transferred_bytes(numbers: Mapping[str, float]) -> float:
    """Return the number of bytes of the root that a measured refresh reads and writes."""
    return sum(numbers[f"{step} {what}"] for step in ("plan", "publish") for what in ("root read", "written"))


@pytest.mark.parametrize("kind", FIRST_REQUESTS)
def test_commits_of_each_kind_have_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Commits stay below the limits in `MAX_OF_COMMITS`, and never read all stored entries at once.

    Entries are the rows that a version stores about each partition and fragment. The first commit has the number of
    requests in `FIRST_REQUESTS`, and reads no byte range twice. All ranges of one object count as one request, because
    the number of ranges depends on random content ids. The log lists all requests of the first commit.
    """
    scale_run.build(tmp_path, kind, min(SIZES))
    forbid_complete_reads(monkeypatch)
    first_commit, *other_commits = MAX_OF_COMMITS
    with caplog.at_level(logging.DEBUG, scale_requests.__name__):
        requests = measure_commit(tmp_path, first_commit, *MAX_OF_COMMITS[first_commit])
    ranges = [message for message in caplog.messages if message.startswith("root: get_range")]
    assert len(ranges) == len(set(ranges))
    objects = {message.partition(" at ")[0] for message in ranges}
    assert requests - len(ranges) + len(objects) == FIRST_REQUESTS[kind]
    for commit in other_commits:
        measure_commit(tmp_path, commit, *MAX_OF_COMMITS[commit])


def test_commits_to_a_table_with_repeated_values_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits to a table with the policy `repeated` stay within limits of requests and bytes.

    The policy stores fingerprints (hashes) of values. Each commit changes some of them.
    """
    monkeypatch.setenv("METASTORE_BENCH_REPEATED", "1")
    scale_run.build(tmp_path, "delta", min(SIZES))
    for commit, limits in MAX_OF_REPEATED_COMMITS.items():
        measure_commit(tmp_path, commit, *limits)


@pytest.mark.long
@pytest.mark.parametrize("kind", FIRST_REQUESTS)
def test_commits_to_a_million_files_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    scale_run.build(tmp_path, kind, 1_000_000)
    forbid_complete_reads(monkeypatch)
    for commit in MAX_OF_COMMITS:
        measure_commit(tmp_path, commit, *MAX_OF_ANY_COMMIT)


def measure_commit(folder: Path, commit: str, max_requests: int, max_bytes: int) -> float:
    """Measure one kind of commit, compare it with limits, and return the number of its requests.

    Args:
        folder: The folder of the table and its root.
        commit: The kind of commit, a key of `scale_tables.COMMITS`.
        max_requests: The limit of requests to the table and the root.
        max_bytes: The limit of bytes that are read from the root and written to it.
    """
    numbers = scale_run.measure(folder, commit)
    assert count_requests(numbers) <= max_requests, commit
    assert transferred_bytes(numbers) <= max_bytes, commit
    assert numbers["tick root requests"] + numbers["tick table requests"] <= TICK_REQUESTS, commit
    return count_requests(numbers)


def test_requests_to_other_folders_are_not_counted(tmp_path: Path) -> None:
    """A request to a table is counted only if the table is in the folder of the counter.

    Other requests occur: threads that other tests left behind may still read the tables and roots of those tests.
    """
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "a.parquet").touch()
    for folder, expected in ((tmp_path, 1), (tmp_path / "other", 0)):
        requests = scale_requests.Requests(folder)
        with requests.installed():
            assert Location.of(str(tmp_path / "table")).stat("a.parquet").size == 0
        assert requests.counts()["table requests"] == expected


@settings(
    max_examples=max(3, settings().max_examples // 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(places=st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True))
def test_a_commit_costs_the_same_in_a_table_of_any_size(folders: dict[int, Path], places: list[int]) -> None:
    """A commit stays below limits of requests and bytes that are the same for all sizes of the table.

    The limits depend only on the number of added files. Each example adds one more commit to the tables, so the stored
    metadata have changes of several commits.
    """

    def append(table: SyntheticTable) -> None:
        touched_partitions = sorted(table.touched)
        table.append([touched_partitions[place] for place in places])

    scale_tables.COMMITS["append"] = append  # type: ignore[index]
    for folder in folders.values():
        numbers = scale_run.measure(folder, "append")
        assert numbers["added"] == len(places)
        others = len(places) - 1
        assert count_requests(numbers) <= REQUESTS + REQUESTS_PER_PARTITION * others
        assert transferred_bytes(numbers) <= BYTES + BYTES_PER_PARTITION * others


@pytest.mark.parametrize(("row_count", "expected"), [(100, 1), (400_000, 3)])
def test_the_client_of_an_object_store_gets_large_pieces(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, row_count: int, expected: int
) -> None:
    """The object store's client gets one write for 100 rows, and three for 400,000 rows.

    Arrow's many small writes are combined, because each call of the client takes time.
    """
    caplog.set_level(logging.DEBUG, scale_requests.__name__)
    table = pa.table({"a": range(row_count), "b": range(row_count)})
    with scale_requests.Requests(tmp_path).installed():
        store = ObjectStore(scale_requests.ROOT)
        with store.parquet_writer("a.parquet", table.schema) as writer:
            writer.write_table(table)
        assert store.read_parquet("a.parquet").equals(table)
    assert sum(message.startswith("root: write ") for message in caplog.messages) == expected
