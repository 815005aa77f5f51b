"""If files are intact but unsupported, no message advises to repair or remove them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import NotStoredError, ProfileError
from metastore_assets.metastore import Metastore
from metastore_assets.pipeline.profiling import FailureAdvice
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.verification.verify import verify
from tests.robustness.refresh_assertions import no_spark


def _avro(path: Path, type_: Any, values: list[Any]) -> None:
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": "a", "type": type_}]}
    fastavro.writer(sink, fastavro.parse_schema(schema), [{"a": value} for value in values])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(sink.getvalue())


@pytest.mark.parametrize("has_damaged_file", [True, False])
@pytest.mark.parametrize("has_unsupported_file", [True, False])
def test_unsupported_and_damaged_files_have_different_advice(
    tmp_path: Path, has_damaged_file: bool, has_unsupported_file: bool
) -> None:
    """The message names only the files that failed.

    It advises repair or removal of damaged files only, because users would miss the rows of unsupported ones.
    """
    lake = tmp_path / "lake"
    _avro(lake / "good.avro", "int", [1, 2])
    if has_damaged_file:
        _avro(lake / "damaged.avro", "int", [1, 2])
        data = (lake / "damaged.avro").read_bytes()
        (lake / "damaged.avro").write_bytes(data[:-4] + b"none")
    if has_unsupported_file:
        _avro(lake / "union.avro", ["int", "long", "string"], [1, "a"])
    table = TableConfig(name="t", uri=str(lake))
    config = MetastoreConfig(root=str(tmp_path / "root"), engine="auto", tables=[table])
    if not has_damaged_file and not has_unsupported_file:
        assert refresh(config, table, no_spark).version == 1
        return
    with pytest.raises(ProfileError) as error_info:
        refresh(config, table, no_spark)
    message = str(error_info.value)
    assert ("damaged.avro" in message) == has_damaged_file
    assert ("union.avro" in message) == has_unsupported_file
    assert "good.avro" not in message
    advice = (
        FailureAdvice.UNSUPPORTED
        if not has_damaged_file
        else FailureAdvice.BOTH
        if has_unsupported_file
        else FailureAdvice.DAMAGED
    )
    assert message.endswith(advice)


@pytest.mark.slow
@pytest.mark.parametrize("by_partition", ["off", "on"])
def test_value_counts_of_a_column_return_when_its_unsupported_file_is_removed(
    tmp_path: Path, by_partition: Literal["off", "on"]
) -> None:
    """While one file has a text that is not UTF-8, its column has no value counts.

    Other files are added and removed meanwhile. After the removal of the file with that text, the value counts are
    those of the remaining files.
    """
    table = TableConfig.model_validate(
        {"name": "t", "uri": str(tmp_path / "lake"), "columns": {"s": {"by_partition": by_partition}}}
    )
    config = MetastoreConfig(root=str(tmp_path / "root"), engine="auto", tables=[table])

    def put(partition: int, name: str, values: list[bytes]) -> Path:
        path = tmp_path / "lake" / f"p={partition}" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"s": pa.array(values, pa.binary()).view(pa.string())}), path)
        return path

    for number in range(4):
        put(0, str(number), [b"x", b"y", b"x"])
    first_file, broken_file = put(1, "first", [b"only here", b"x"]), put(1, "broken", [b"\xff"])
    put(1, "last", [b"z"])
    changes: list[Callable[[], object]] = [lambda: None, first_file.unlink, lambda: put(1, "added", [b"new"])]
    for change in changes:
        change()
        refresh(config, table, no_spark)
        lookup = Metastore(config.root).table("t")
        assert lookup.statistics(["s"])[0].frequencies == "absent"
        assert verify(config, table, no_spark).is_right
        with pytest.raises(NotStoredError):
            lookup.top("s")
    broken_file.unlink()
    refresh(config, table, no_spark)
    lookup = Metastore(config.root).table("t")
    counts = {value.as_py(): count for value, count in lookup.top("s")}
    assert counts == {"x": 8, "y": 4, "z": 1, "new": 1}
    assert [(row.partition, row.frequency) for row in lookup.locate("s", "x")] == [("p=0", 8)]
    assert verify(config, table, no_spark).is_right


def test_limits_apply_to_partitions_of_a_column_that_the_table_does_not_enumerate(tmp_path: Path) -> None:
    """`top(1)` applies to a partition's value counts even if the table has none.

    The table has none because one text is not UTF-8.
    """
    table = TableConfig.model_validate(
        {
            "name": "t",
            "uri": str(tmp_path / "lake"),
            "columns": {"s": {"frequencies": "top(1)"}, "p": {"frequencies": "off"}},
        }
    )
    config = MetastoreConfig(root=str(tmp_path / "root"), engine="auto", tables=[table])
    for partition, values in enumerate([[b"x", b"y", b"x"], [b"\xff"]]):
        folder = tmp_path / "lake" / f"p={partition}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"s": pa.array(values, pa.binary()).view(pa.string())}), folder / "1.parquet")
    refresh(config, table, no_spark)
    lookup = Metastore(config.root).table("t")
    assert [(value.as_py(), count) for value, count in lookup.top("s", partition="p=0")] == [("x", 2)]
