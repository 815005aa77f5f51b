"""`verify` reports missing files of every kind in a version, and changed values in most kinds.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts.compact import compact
from metastore_assets.pipeline.verification.verify import verify
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.robustness.policy_histories import CUSTOM_STATISTICS
from tests.robustness.refresh_assertions import no_spark
from tests.store.sample_versions import files_of

COLUMNS: dict[str, Any] = {
    "ranked": {"ranks": "on"},
    "placed": {"by_partition": "on", "statistics": CUSTOM_STATISTICS},
    "filtered": {"frequencies": "off", "value_filter": "on"},
    "printed": {"frequencies": "repeated", "algorithm": "fingerprints"},
}
HINT = "versions/newest"
"""The hint for the newest version, which may be wrong or missing."""


def config(folder: Path) -> MetastoreConfig:
    table = TableConfig.model_validate({"name": "t", "uri": str(folder / "lake"), "columns": COLUMNS})
    return MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])


def put(folder: Path, part: int, name: str, seed: int) -> Path:
    draw = random.Random(seed)
    path = folder / "lake" / f"part={part}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {
        "ranked": [draw.gauss(0, 9) for _ in range(20)],
        "placed": [draw.randrange(9) for _ in range(20)],
        "filtered": [f"text {draw.randrange(99)}" for _ in range(20)],
        "printed": [draw.randrange(30) for _ in range(20)],
    }
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and its root, the folder of all stored state.

    The stored files are of every kind that a version can have. One of two partitions has so many files that their
    profiles (statistics) are merged in steps. One file was added later and one removed, and value counts are compacted.
    """
    folder = tmp_path_factory.mktemp("whole")
    for number in range(9):
        put(folder, 0, str(number), number)
    removed_file = put(folder, 1, "gone", 10)
    put(folder, 1, "stays", 11)
    loaded_config = config(folder)
    refresh(loaded_config, loaded_config.tables[0], no_spark)
    removed_file.unlink()
    put(folder, 0, "later", 12)
    refresh(loaded_config, loaded_config.tables[0], no_spark)
    compact(VersionStore(ObjectStore(loaded_config.root), "t"), loaded_config.tables[0])
    assert reported_damage(folder) == ""
    return folder


def kinds(folder: Path) -> dict[str, list[Path]]:
    """Return the files of the newest version by kind, such as `index/*.index.parquet`."""
    version = VersionStore(ObjectStore(config(folder).root), "t").latest()
    assert version is not None
    files_by_kind: dict[str, list[Path]] = {}
    for path in sorted(set(files_of(version))):
        files_by_kind.setdefault(re.sub(r"[0-9a-f]{32}|\d+", "*", path), []).append(folder / "root" / "t" / path)
    return files_by_kind


def reported_damage(folder: Path) -> str:
    """Return what `verify` reports, or an empty text if all files are intact."""
    loaded_config = config(folder)
    try:
        result = verify(loaded_config, loaded_config.tables[0], no_spark)
    except MetastoreError as error:
        return str(error)
    # A fragment that the table lacks counts as a change of the table since, which is reported separately.
    return "" if result.is_right and not result.skipped_partitions else str(result)


def test_errors_name_missing_files_of_every_kind(intact: Path) -> None:
    result = kinds(intact)
    assert len(result) > 20
    for kind, paths in result.items():
        if kind == HINT or kind.startswith("versions/"):
            continue  # a version without its document does not exist: the one before is the newest
        for path in paths[:2]:
            data = path.read_bytes()
            path.unlink()
            assert path.name in reported_damage(intact), kind
            path.write_bytes(data)


def different_value(value: Any) -> Any:
    """Return a different value of the same type, or None if there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1]) if value else None
    if isinstance(value, list):
        differences = (
            [*value[:at], different_value(item), *value[at + 1 :]]
            for at, item in enumerate(value)
            if different_value(item) is not None
        )
        return next(differences, None)
    if isinstance(value, dict):
        return next(
            (
                value | {name: different_value(item)}
                for name, item in value.items()
                if different_value(item) is not None
            ),
            None,
        )
    return None


def change(path: Path, column: str) -> bool:
    """Replace a value of a column in one row of a file, and return whether there is such a value.

    Null, for example, has no replacement.
    """
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(at) for at in range(file.num_row_groups)]
    for at, table in enumerate(groups):
        values = table[column].to_pylist()
        row = next((row for row, value in enumerate(values) if different_value(value) is not None), None)
        if row is None:
            continue
        values[row] = different_value(values[row])
        index, field = table.schema.get_field_index(column), table.schema.field(column)
        groups[at] = table.set_column(index, field, pa.array(values, field.type))
        with pq.ParquetWriter(path, file.schema_arrow) as writer:
            for group in groups:
                writer.write_table(group)
            stored_metadata = file.metadata.metadata or {}
            writer.add_key_value_metadata({k: v for k, v in stored_metadata.items() if k != b"ARROW:schema"})
        return True
    return False


CHANGED = {
    "partitions/*.statistics.parquet": ("null_count", "partition"),
    "partitions/*.histograms.parquet": ("placed", "histogram"),
    "table/*.statistics.parquet": ("mean", "table"),
    "table/*.frequencies.parquet": ("frequency", "frequencies file"),
    "table/*.ranks.parquet": ("rank", "ranks file"),
    "nodes/*.states.parquet": ("null_count", "node"),
    "index/*.index.parquet": ("null_count", "index"),
    "entries/*.partitions.parquet": ("bytes", "partition"),
}


def test_changed_values_are_reported(intact: Path, tmp_path: Path) -> None:
    """If values are changed in all kinds of files in `CHANGED`, `verify` names the damage of each kind."""
    folder = tmp_path / "copy"
    shutil.copytree(intact, folder)
    result = kinds(folder)
    for kind, (column, _) in CHANGED.items():
        assert [path for path in result[kind] if change(path, column)], kind
    answer = reported_damage(folder)
    for kind, (_, where) in CHANGED.items():
        assert where in answer, (kind, answer)
