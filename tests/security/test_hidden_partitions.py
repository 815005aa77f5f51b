"""Hiding a partition column is refused under any of its names, and no value is stored.

A hidden column has the policy `values: hidden`: no statistic or message may show its values.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError
from metastore_assets.pipeline.refresh import refresh
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.robustness.refresh_assertions import no_spark
from tests.security.token_search import files_with

TOKEN = "Zyzzyva-Secret"
COLUMNS = [column(1, "id", "long"), column(2, "email", "string"), column(3, "born", "date")]
ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "email": [TOKEN, TOKEN],
        "born": pa.array([7305, 7305], pa.date32()),
    }
)


def config_with_columns(folder: Path, **columns: Any) -> MetastoreConfig:
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), "columns": columns})
    return MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])


def assert_refused(folder: Path, message: str, **columns: Any) -> None:
    config = config_with_columns(folder, **columns)
    with pytest.raises(ConfigError, match=message) as error_info:
        refresh(config, config.tables[0], no_spark)
    assert TOKEN not in str(error_info.value)
    assert files_with(folder / "root", TOKEN) == []


def iceberg_partitioned_by(folder: Path, transform: str, source: int = 2, name: str = "p_email") -> IcebergWriter:
    field = {"name": name, "transform": transform, "source-id": source, "field-id": 1000}
    kind = "string" if transform == "identity" or transform.startswith("truncate") else "int"
    specs = {0: [field]}
    return IcebergWriter(folder / "lake", COLUMNS, specs=specs, partition_types={1000: kind})


HIDDEN = {"values": "hidden"}


@pytest.mark.parametrize(
    ("transform", "value"),
    [("identity", TOKEN), ("truncate[8]", TOKEN[:8]), ("bucket[4]", 3), ("some_day[2]", 3)],
)
def test_the_source_of_an_iceberg_partition_field_cannot_be_hidden(tmp_path: Path, transform: str, value: Any) -> None:
    writer = iceberg_partitioned_by(tmp_path, transform)
    writer.commit(writer.data(ROWS, partition=(value,)))
    assert_refused(tmp_path, r"columns\.email\b.*'p_email'", email=HIDDEN)
    # Other columns may be hidden.
    config = config_with_columns(tmp_path, born=HIDDEN)
    assert refresh(config, config.tables[0], no_spark).published


@pytest.mark.parametrize("transform", ["year", "month", "day"])
def test_the_source_of_a_date_transform_cannot_be_hidden(tmp_path: Path, transform: str) -> None:
    writer = iceberg_partitioned_by(tmp_path, transform, 3, "p_born")
    writer.commit(writer.data(ROWS, partition=({"year": 20, "month": 240, "day": 7305}[transform],)))
    assert_refused(tmp_path, rf"columns\.born\b.*'p_born' \({transform}\)", born=HIDDEN)


def test_a_renamed_partition_column_cannot_be_hidden(tmp_path: Path) -> None:
    writer = iceberg_partitioned_by(tmp_path, "identity", name="email")
    writer.commit(writer.data(ROWS, partition=(TOKEN,)))
    writer.schemas.append([COLUMNS[0], column(2, "contact", "string"), COLUMNS[2]])
    writer.write_metadata()
    assert_refused(tmp_path, r"columns\.contact\b.*'email' \(identity\)", contact=HIDDEN)


def test_a_column_that_was_dropped_since_is_hidden_by_default(tmp_path: Path) -> None:
    writer = iceberg_partitioned_by(tmp_path, "identity")
    writer.commit(writer.data(ROWS, partition=(TOKEN,)))
    writer.schemas.append([COLUMNS[0], COLUMNS[2]])
    writer.write_metadata()
    assert_refused(tmp_path, r"columns\.email\b.*'p_email'", default=HIDDEN)


def test_a_struct_field_that_partitions_cannot_be_hidden(tmp_path: Path) -> None:
    person = column(2, "person", {"type": "struct", "fields": [column(4, "mail", "string")]})
    field = {"name": "p", "transform": "identity", "source-id": 4, "field-id": 1000}
    writer = IcebergWriter(
        tmp_path / "lake", [COLUMNS[0], person], specs={0: [field]}, partition_types={1000: "string"}
    )
    type_ = pa.struct([pa.field("mail", pa.string(), metadata={"PARQUET:field_id": "4"})])
    rows = pa.table({"id": pa.array([1], pa.int64()), "person": pa.array([{"mail": TOKEN}], type_)})
    writer.commit(writer.data(rows, partition=(TOKEN,)))
    assert_refused(tmp_path, r"columns\.person\.mail\b.*'p' ", person=HIDDEN)


def test_a_partition_spec_without_files_permits_hiding(tmp_path: Path) -> None:
    """A column may be hidden if no file has a partition spec that partitions by it.

    As long as files have such a spec, hiding the column is refused.
    """
    writer = iceberg_partitioned_by(tmp_path, "identity")
    writer.specs[1] = []
    old = writer.data(ROWS, partition=(TOKEN,))
    writer.commit(old)
    writer.commit(writer.data(ROWS, spec_id=1))
    assert_refused(tmp_path, r"columns\.email\b.*'p_email'", email=HIDDEN)
    writer.commit(removed_entries=[old])
    config = config_with_columns(tmp_path, email=HIDDEN)
    assert refresh(config, config.tables[0], no_spark).published
    assert files_with(tmp_path / "root", TOKEN) == []


def delta(folder: Path, generation_expression: str, partition: str | None) -> None:
    """Write a Delta table with a column `copy` that is generated from `email`.

    `generation_expression` is the expression of `copy`, and `partition` is the partition column; None if there is none.
    """
    rows = ROWS.append_column("copy", pa.array([TOKEN.lower()] * 2))
    write_deltalake(str(folder / "lake"), rows, partition_by=[partition] if partition else None)
    log = folder / "lake" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            schema["fields"][3]["metadata"] = {"delta.generationExpression": generation_expression}
            line["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, lines)))
    assert DeltaTable(str(folder / "lake")).version() == 0


@pytest.mark.parametrize("expression", ["lower(email)", "lower(`Email`)", "lower( EMAIL )"])
def test_the_source_of_a_generated_delta_column_cannot_be_hidden(tmp_path: Path, expression: str) -> None:
    delta(tmp_path, expression, None)
    assert_refused(tmp_path, r"columns\.email\b.*'copy'", email=HIDDEN)
    config = config_with_columns(tmp_path, email=HIDDEN, copy=HIDDEN)
    assert refresh(config, config.tables[0], no_spark).published
    assert files_with(tmp_path / "root", TOKEN) == files_with(tmp_path / "root", TOKEN.lower()) == []


@pytest.mark.parametrize("hidden_column", ["email", "copy"])
def test_a_generated_partition_column_of_delta_cannot_be_hidden(tmp_path: Path, hidden_column: str) -> None:
    delta(tmp_path, "lower(email)", "copy")
    assert_refused(tmp_path, rf"columns\.{hidden_column}\b.*\bpartitioned\b.*'copy'", **{hidden_column: HIDDEN})


def test_a_partition_column_with_a_dot_cannot_be_hidden(tmp_path: Path) -> None:
    """Hiding a partition column is refused even if its name has a dot.

    The policy has the path of the column in backticks. The same path without backticks is that of a field of a struct.
    """
    rows = pa.table({"a.b": [TOKEN], "a": [{"b": 1}], "n": [1]})
    write_deltalake(str(tmp_path / "lake"), rows, partition_by=["a.b"])
    assert_refused(tmp_path, r"columns\.`a\.b`.*\bpartitioned\b", **{"`a.b`": HIDDEN})
