"""Versions are selected by number, snapshot or time, and every answer names its version.

A version has the statistics of one snapshot of the table.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.errors import LiteralError, PartitionNotFoundError, VersionNotFoundError
from metastore_assets.lookup import Table
from metastore_assets.lookup.version_references import SnapshotId, parse_version_reference
from metastore_assets.metastore import Metastore, open_table
from metastore_assets.storage.parallel import interruptible_map
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.lookup.publishing import publish

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
ROWS = pa.table({"n": pa.array([1, 1, 2, None]), "text": ["a", "b", "b", "c"], "x": [0.5, math.nan, math.inf, -1.0]})


def committed(root: str, snapshots: list[tuple[str, datetime | None]]) -> None:
    """Publish versions of equal content for the given snapshots and times."""
    store = ObjectStore(root)
    first = publish(store, ROWS).version
    versions = VersionStore(store, "orders")
    versions.objects.delete([versions.documents.path(1)])
    for number, (snapshot, at) in enumerate(snapshots, 1):
        new_version = replace(
            first, number=number, snapshot=snapshot, committed_at=at, published_at=NOON + timedelta(days=9)
        )
        versions.publish(new_version)


def test_a_version_is_selected_by_number_snapshot_or_time(tmp_path: Path) -> None:
    hour = timedelta(hours=1)
    root = str(tmp_path)
    committed(root, [("7", NOON), ("8", NOON + hour), ("7", NOON + 2 * hour), ("2024-01-01", NOON + 3 * hour)])
    opened_numbers: dict[Any, int] = {
        reference: open_table(root, "orders", version=reference).version.number
        for reference in (
            *(None, 2, "2", "snapshot:8", "snapshot:7", "snapshot:2024-01-01"),
            *(NOON, "2024-03-01T13:59:59.9Z", "2024-03-01T15:00+01:00", "2024-03-01T15:00"),
        )
    }
    assert list(opened_numbers.values()) == [4, 2, 2, 2, 3, 4, 1, 2, 3, 4]
    assert open_table(root, "orders", version=(NOON + hour).replace(tzinfo=None)).version.number == 2
    with pytest.raises(VersionNotFoundError, match=r"2024-01-01,.*7,.*8"):
        open_table(root, "orders", version="snapshot:9")
    with pytest.raises(VersionNotFoundError, match=r"version 8\b.*snapshot:8"):
        open_table(root, "orders", version=8)
    with pytest.raises(VersionNotFoundError, match="2024-01-01"):
        open_table(root, "orders", version="2024-01-01")
    with pytest.raises(VersionNotFoundError, match=r"'orders'.*\b2024-"):
        open_table(root, "orders", version=NOON - timedelta(microseconds=1))
    with pytest.raises(VersionNotFoundError, match=r"version 5\b"):
        open_table(root, "orders", version=5)


@pytest.mark.parametrize(
    ("reference", "parsed_reference"),
    [
        (999_999_999, 999_999_999),
        ("000000012", 12),
        (7263012345678901234, SnapshotId("7263012345678901234")),
        ("20240301120000123", SnapshotId("20240301120000123")),
        ("snapshot:12", SnapshotId("12")),
        ("8f3e", SnapshotId("8f3e")),
        ("\u0663", SnapshotId("\u0663")),
        ("2024-03-01", NOON.replace(hour=0)),
        (NOON.replace(tzinfo=None), NOON),
    ],
)
def test_a_version_reference_has_one_meaning(reference: Any, parsed_reference: Any) -> None:
    assert parse_version_reference(reference) == parsed_reference


@pytest.mark.parametrize("reference", [True, 1.0, b"1"])
def test_a_version_reference_of_another_type_is_an_error(reference: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(reference))):
        parse_version_reference(reference)


def test_publication_time_is_used_without_a_commit_time(tmp_path: Path) -> None:
    committed(str(tmp_path), [("7", None)])
    assert open_table(str(tmp_path), "orders", version=NOON + timedelta(days=9)).version.number == 1
    with pytest.raises(VersionNotFoundError):
        open_table(str(tmp_path), "orders", version=NOON)


def test_every_result_names_its_version(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    publish(store, ROWS)
    table = publish(store, ROWS, partitions={"p=1": ROWS.slice(0, 2), "p=2": ROWS.slice(2)})
    answers: list[Any] = [
        table.top("text"),
        table.quantile("n", 0.5),
        *table.quantile("n", [0, 1]),
        table.rank("n", 2),
        table.frequency("text", "b"),
        table.frequency("text", "zzz"),
        table.frequency_between("n", 1, 2),
        table.locate("text", "b"),
        table.histogram("n"),
    ]
    assert {(answer.as_of.version, answer.as_of.snapshot, answer.guarantee) for answer in answers} == {
        (2, "snapshot 2", "exact")
    }
    assert table.statistics().as_of == table.as_of
    assert table.newer_version() is None
    assert Metastore(str(tmp_path)).table("orders", version=1).newer_version() == 2


def test_statistics_of_many_partitions_are_one_table(tmp_path: Path) -> None:
    parts = {f"p={at}": ROWS.slice(at, 1) for at in range(4)}
    table = publish(ObjectStore(str(tmp_path)), ROWS, partitions=parts)
    result = table.statistics(["text", "n"], partition="*").to_arrow()
    assert result["partition"].to_pylist() == [key for key in parts for _ in range(2)]
    assert result["column"].to_pylist() == ["text", "n"] * 4
    assert result["null_count"].to_pylist() == [0, 0, 0, 0, 0, 0, 0, 1]
    statistics = table.statistics(["n"], partition=["p=2", "p=0"])
    assert [row.partition for row in statistics] == ["p=2", "p=0"]
    assert statistics == [*table.statistics(["n"], partition="p=2"), *table.statistics(["n"], partition="p=0")]
    assert table.statistics(["n"], partition="p=1") == table.statistics(["n"], partition="p=1")
    assert table.statistics(partition=[]).to_arrow().num_rows == 0
    full = table.statistics().to_arrow()
    assert "partition" not in full.column_names
    assert full.schema.metadata == {b"metastore.version": b"1", b"metastore.snapshot": b"snapshot 1"}
    with pytest.raises(PartitionNotFoundError, match="p=9"):
        table.statistics(partition=["p=1", "p=9"])
    assert [row.partition for row in table.statistics(["n"], partition=["p=3", "*"])] == list(parts)
    with pytest.raises(PartitionNotFoundError, match="4 partitions"):
        table.top("text", partition="p=*")


@pytest.fixture(scope="module")
def measured_table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    numbers = [(-1) ** n * n**3 for n in range(400)]
    days = pa.array([n % 700 for n in range(400)], pa.int32()).cast(pa.date32())
    rows = pa.table({"i": numbers, "f": [n / 7 for n in numbers[:-1]] + [math.inf], "day": days})
    return publish(ObjectStore(str(tmp_path_factory.mktemp("root"))), rows)


@settings(max_examples=max(30, settings().max_examples // 10))
@given(data=st.data())
def test_a_range_of_a_histogram_has_the_bins_that_overlap_it(measured_table: Table, data: st.DataObject) -> None:
    """A histogram of a range of values has those bins of the full histogram that overlap the range.

    With a maximum number of bins, it has fewer, wider ones of the same total frequency.
    """
    column = data.draw(st.sampled_from(["i", "f"]))
    bound = st.one_of(st.none(), st.integers(-(10**8), 10**8))
    lower, upper = data.draw(bound), data.draw(bound)
    full = measured_table.histogram(column)
    low, high = (-math.inf if lower is None else lower), (math.inf if upper is None else upper)
    overlapping_bins = [bin_ for bin_ in full if bin_.maximum.as_py() > low and bin_.minimum.as_py() <= high]
    result = measured_table.histogram(column, lower=lower, upper=upper)
    assert result == (overlapping_bins if low <= high else [])
    few = measured_table.histogram(column, bins=3, lower=lower, upper=upper)
    assert len(few) <= 3
    assert sum(bin_.frequency for bin_ in few) == sum(bin_.frequency for bin_ in result)


def test_range_bounds_may_be_infinite_or_nan_but_not_invalid(measured_table: Table) -> None:
    assert measured_table.histogram("f", lower=math.inf) == []
    assert measured_table.histogram("f", lower=-math.inf, upper=math.inf) == measured_table.histogram("f")
    assert measured_table.histogram("f", upper=math.nan) == measured_table.histogram("f"), "NaN is the greatest"
    frequencies = Counter(
        {bin_.minimum.as_py(): bin_.frequency for bin_ in measured_table.histogram("day", upper=date(1970, 1, 2))}
    )
    assert frequencies.total() >= 2
    with pytest.raises(LiteralError, match=r"'x'.*'i'"):
        measured_table.histogram("i", lower="x")


def test_a_panic_in_a_thread_is_raised_by_the_caller() -> None:
    """If a Rust library panics in a worker thread, the caller raises the panic and does not wait forever.

    The class of a panic is no subclass of `Exception`.
    """
    panic = pl.exceptions.PanicException

    def fail(item: object) -> None:
        raise panic(str(item))

    errors: list[BaseException] = []

    def call() -> None:
        try:
            interruptible_map(fail, [1, 2])
        except panic as error:
            errors.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(60)
    assert [str(error) for error in errors] == ["1"]
