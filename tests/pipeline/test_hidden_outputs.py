"""No output reveals a hidden value, and a purge removes values that were stored before.

Outputs are stored files, value counts, index, filters, history, page, command output and logs.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from metastore_assets.cli.commands import cli
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.history import append_versions
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.pipeline.test_purge import cells, holding
from tests.robustness.policy_histories import CUSTOM_STATISTICS
from tests.robustness.refresh_assertions import no_spark

TEXTS = ("Secret-Name", "88122355", "secret@inside")
BYTES = (struct.pack("<q", 88122355), struct.pack("<d", 88122355))
"""The hidden number in the two binary forms that stored states might contain."""
HIDDEN = ("name", "number", "person")


def config(folder: Path, *, is_hidden: bool) -> MetastoreConfig:
    """Return a configuration with every kind of output.

    Hidden columns have the options that are permitted for them.
    """
    policy: dict[str, Any] = {
        "by_partition": "on",
        "ranks": "on",
        "value_filter": "on",
        "statistics": CUSTOM_STATISTICS,
    }
    # Options that need value counts are refused for hidden columns.
    columns = {name: {"values": "hidden", "ranks": "off", "by_partition": "off"} for name in HIDDEN if is_hidden}
    table = TableConfig.model_validate(
        {"name": "t", "uri": str(folder / "lake"), "columns": {"default": policy, **columns}}
    )
    return MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])


def put(folder: Path, number: int) -> Path:
    path = folder / "lake" / f"part={number % 2}" / f"{number}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {
        "id": list(range(20)),
        "name": [f"Secret-Name {at % 7}" for at in range(20)],
        "number": [88122355] * 20,
        "person": [{"mail": f"secret@inside{at % 5}"} for at in range(20)],
    }
    pq.write_table(pa.table(columns), path)
    return path


def published(folder: Path, loaded_config: MetastoreConfig) -> VersionStore:
    """Publish four commits, compact value counts, record the history, and return the versions.

    The last commit replaces a file.
    """
    versions = VersionStore(ObjectStore(loaded_config.root), "t")
    for number in range(3):
        path = put(folder, number)
        refresh(loaded_config, loaded_config.tables[0], no_spark)
    path.unlink()
    put(folder, 3)
    refresh(loaded_config, loaded_config.tables[0], no_spark)
    compact(versions, loaded_config.tables[0])
    append_versions(versions)
    return versions


def files_with_values(folder: Path) -> list[str]:
    """Return the files of the root that contain a secret value, as text or as the bytes of a number."""
    root = folder / "root"
    result = [path for text in TEXTS for path in holding(root, text)]
    for path in root.rglob("*.parquet"):
        content = b"".join(cells(pq.ParquetFile(path).read()))
        result += [str(path) for number in BYTES if number in content]
    return result


def assert_says_nothing(command: list[str]) -> None:
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, (command, result.output)
    assert [text for text in TEXTS if text in result.output] == [], command


def test_no_output_reveals_a_hidden_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded_config = config(tmp_path, is_hidden=True)
    with caplog.at_level(logging.DEBUG):
        published(tmp_path, loaded_config)
        assert files_with_values(tmp_path) == []
        (tmp_path / "metastore.yaml").write_text(loaded_config.model_dump_json(exclude_unset=True), encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        page = tmp_path / "page.html"
        for command in (
            "show t", "show t --json", "history t", "history t number --json",
            "diff t --json", "changes t --since 1 --json", "verify t --json", "refresh t --json",
            f"report t -o {page}",
        ):  # fmt: skip
            assert_says_nothing(command.split())
        for predicate in ("number > 5", "name = 'Other'", "person.mail is null"):
            assert_says_nothing(["prune", "t", "--where", predicate, "--json"])
        assert "name" in page.read_text(encoding="utf-8")
        assert [text for text in TEXTS if text in page.read_text(encoding="utf-8")] == []
    assert [text for text in TEXTS if text in caplog.text] == []
    assert files_with_values(tmp_path) == []


def test_a_purge_removes_values_shown_before_from_all_outputs(tmp_path: Path) -> None:
    versions = published(tmp_path, config(tmp_path, is_hidden=False))
    kinds = {Path(path).parts[1] for path in holding(tmp_path / "root", TEXTS[0])}
    assert {"table", "value_counts", "index", "partitions", "fragments", "history"} <= kinds
    loaded_config = config(tmp_path, is_hidden=True)
    refresh(loaded_config, loaded_config.tables[0], no_spark)
    append_versions(versions)
    purge(Engine(no_spark, "auto"), versions, versions.newest())
    assert files_with_values(tmp_path) == []
