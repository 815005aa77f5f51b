"""Errors of a table with hidden columns quote no value, wherever they are raised or printed.

A hidden column has the policy `values: hidden`: no statistic or message may show its values.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from metastore_assets.cli.commands import cli
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.formats import metadata_cache, redaction
from metastore_assets.pipeline.refresh import plan_refresh, refresh
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.robustness.refresh_assertions import no_spark
from tests.security.token_search import files_with

TOKEN = "Zyzzyva-Secret"
GOOD = f"id,email\n1,{TOKEN}\n2,{TOKEN}\n"


def hidden_config(folder: Path, hidden_column: str = "email", **more: Any) -> MetastoreConfig:
    columns = {hidden_column: {"values": "hidden"}} if hidden_column else {}
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), "columns": columns, **more})
    return MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])


def ragged_row(lake: Path) -> None:
    (lake / "1.csv").write_text(f"{GOOD}3,{TOKEN},too much\n")


def ragged_row_in_second_file(lake: Path) -> None:
    ragged_row(lake)
    (lake / "0.csv").write_text(GOOD)


def open_quote(lake: Path) -> None:
    (lake / "1.csv").write_text(f'{GOOD}3,"{TOKEN}\n')


def no_utf8(lake: Path) -> None:
    (lake / "1.csv").write_bytes(GOOD.encode() + f"3,{TOKEN}".encode() + b"\xff\n")


def duplicate_column_name(lake: Path) -> None:
    (lake / "1.csv").write_text(f"{TOKEN},{TOKEN},id\n1.5,2.5,1\n2.5,3.5,2\n")


def broken_json(lake: Path) -> None:
    (lake / "1.jsonl").write_text(f'{{"id": 1, "email": "{TOKEN}"}}\n{{"id": 2, "email": "{TOKEN}", {TOKEN}\n')


def json_number_beyond_floats(lake: Path) -> None:
    (lake / "1.jsonl").write_text('{"id": 1, "email": 881223554477e999}\n')


def delta_statistics(lake: Path) -> None:
    write_deltalake(str(lake), pa.table({"id": [1], "email": [TOKEN]}))
    log = lake / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = {"numRecords": TOKEN}
    log.write_text("\n".join(map(json.dumps, lines)))


def iceberg_bounds(lake: Path) -> None:
    lake.rmdir()
    writer = IcebergWriter(lake, [column(1, "id", "long"), column(2, "email", "string")], version=3)
    writer.commit(writer.data(pa.table({"id": pa.array([1], pa.int64()), "email": [TOKEN]})))
    writer.schemas.append([*writer.schemas[0], column(3, "born", "date", initial_default=TOKEN)])
    writer.write_metadata()


FAULTS: list[Callable[[Path], None]] = [
    *(ragged_row, ragged_row_in_second_file, open_quote, no_utf8, duplicate_column_name, broken_json),
    *(json_number_beyond_floats, delta_statistics, iceberg_bounds),
]


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error as logs show it, including causes and contexts."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_no_error_of_planning_or_reading_quotes_a_value(tmp_path: Path, fault: Callable[[Path], None]) -> None:
    (tmp_path / "lake").mkdir()
    fault(tmp_path / "lake")
    # With an existing column: for another name, the error would quote a data row.
    config = hidden_config(tmp_path, "id" if fault is duplicate_column_name else "email")
    secrets = (TOKEN, "881223554477")
    for attempt in (
        lambda: plan_refresh(config, config.tables[0]),
        lambda: refresh(config, config.tables[0], no_spark),
    ):
        metadata_cache.clear_process_cache()
        try:
            attempt()
        except MetastoreError as error:
            error_text = traceback_text(error)
        else:
            error_text = redaction._NOTE
            assert fault in (ragged_row_in_second_file, delta_statistics)
        assert not any(secret in error_text for secret in secrets), error_text
        assert redaction._NOTE in error_text
    (tmp_path / "metastore.yaml").write_text(config.model_dump_json(exclude_unset=True), encoding="utf-8")
    for command in ("refresh t", "refresh t --dry-run", "--debug refresh t", "refresh t --json"):
        done = CliRunner().invoke(cli, [*command.split(), "--config", str(tmp_path / "metastore.yaml")])
        assert not any(secret in done.output for secret in secrets), done.output
    assert files_with(tmp_path / "root", *secrets) == []


def test_an_error_has_no_hidden_value(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    ragged_row(tmp_path / "lake")
    config = hidden_config(tmp_path)
    with pytest.raises(MetastoreError, match=r"1\.csv: .*line 4: .*\b2\b.*\b3;"):
        plan_refresh(config, config.tables[0])
    metadata_cache.clear_process_cache()
    shown_config = hidden_config(tmp_path, "")
    with pytest.raises(MetastoreError, match=f"line 4: .*3,{TOKEN},too much"):
        plan_refresh(shown_config, shown_config.tables[0])


def test_no_error_of_counting_quotes_a_value(tmp_path: Path) -> None:
    """The output of a failed count quotes no value of a hidden column.

    The count reads a damaged file that no refresh has seen.
    """
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "email": [TOKEN, TOKEN]}), lake / "0.parquet")
    config = hidden_config(tmp_path)
    refresh(config, config.tables[0], no_spark)
    pq.write_table(pa.table({"id": [1, 2], "email": [TOKEN, TOKEN]}), lake / "1.parquet", compression="none")
    data = (lake / "1.parquet").read_bytes()
    (lake / "1.parquet").write_bytes(data.replace(TOKEN.encode(), b"\xff" + TOKEN[1:].encode()))
    (tmp_path / "metastore.yaml").write_text(config.model_dump_json(exclude_unset=True), encoding="utf-8")
    where = ["--where", "email = 'x'"]
    done = CliRunner().invoke(cli, ["--debug", "count", "t", *where, "--config", str(tmp_path / "metastore.yaml")])
    assert TOKEN[1:] not in done.output
