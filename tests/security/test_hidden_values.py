"""Nothing that reveals a value of a column with `values: hidden` is stored, logged or printed.

This holds for every format, and for all files below the root. Hidden columns of each table have tokens that occur
nowhere else: as texts, integers and decimals, inside structs, lists and maps, and in delete files. All output is
decompressed and searched for them. A root is the folder with all stored state. A version is the published statistics of
a table at one snapshot.
"""

from __future__ import annotations

import json
import logging
import struct
import tempfile
from abc import ABC, abstractmethod
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import lance
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from metastore_assets.cli.commands import cli
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.formats import metadata_cache, open_table_format
from metastore_assets.formats.metadata_cache import MetadataCache
from metastore_assets.history import append_versions
from metastore_assets.metastore import open_table
from metastore_assets.pipeline.plan import RefreshRequest
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.formats.hudi.tables import HudiCopyOnWrite, HudiMergeOnRead
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.robustness.refresh_assertions import no_spark
from tests.security.token_search import files_with

TEXT, NUMBER, AMOUNT, BEYOND = "Zyzzyva-Secret", 881223554477, Decimal("44772588.11"), 2**53 + 881223554477
TOKENS: tuple[str | bytes, ...] = (
    TEXT,
    str(NUMBER),
    str(BEYOND),
    str(AMOUNT),
    str(AMOUNT).replace(".", ""),
    *(struct.pack(kind, number) for number in (NUMBER, BEYOND) for kind in ("<q", ">q", "<d")),
    int(AMOUNT * 100).to_bytes(5, "big"),
    int(AMOUNT * 100).to_bytes(5, "little"),
)
HIDDEN = ("email", "number", "amount", "big", "person", "tags", "pairs")
FLAT = ("email", "number", "amount", "big")


def rows(start: int, names: tuple[str, ...] = HIDDEN) -> pa.Table:
    """Return eight rows from number `start`, with the column `id` and the hidden columns `names`.

    Hidden columns contain tokens, as texts, numbers, and in nested values.
    """
    numbers = range(start, start + 8)
    columns = {
        "email": [f"{TEXT} {n}" for n in numbers],
        "number": pa.array([NUMBER] * 8, pa.int64()),
        "amount": pa.array([AMOUNT] * 8, pa.decimal128(12, 2)),
        "big": pa.array([BEYOND] * 8, pa.int64()),
        "person": [{"mail": f"{TEXT} {n}", "number": NUMBER} for n in numbers],
        "tags": [[f"{TEXT} {n}", TEXT] for n in numbers],
        "pairs": pa.array([[(TEXT, NUMBER)] for _ in numbers], pa.map_(pa.string(), pa.int64())),
    }
    return pa.table({"id": pa.array(list(numbers), pa.int64()), **{name: columns[name] for name in names}})


class Lake(ABC):
    """A table in a folder.

    `write` adds rows. `change` deletes rows, changes the schema, or adds a file.
    """

    names = HIDDEN

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lake"

    @abstractmethod
    def write(self, number: int) -> None: ...

    def change(self) -> None:
        self.write(9)


class Files(Lake):
    suffix = ""

    def write(self, number: int) -> None:
        self.folder.mkdir(exist_ok=True)
        self.put(rows(8 * number, self.names), self.folder / f"{number}.{self.suffix}")

    @abstractmethod
    def put(self, table: pa.Table, path: Path) -> None: ...


class Parquet(Files):
    suffix = "parquet"

    def put(self, table: pa.Table, path: Path) -> None:
        pq.write_table(table, path)


class Orc(Files):
    suffix = "orc"

    def put(self, table: pa.Table, path: Path) -> None:
        orc.write_table(table, path)


class Csv(Files):
    suffix, names = "csv", FLAT

    def put(self, table: pa.Table, path: Path) -> None:
        pacsv.write_csv(table, path)

    def change(self) -> None:
        """Add a file whose texts change the type of a column of numbers.

        The reader then quotes a value that is no number.
        """
        table = rows(72, self.names)
        self.put(table.set_column(2, "number", pa.array([f"{TEXT}"] * 8)), self.folder / "9.csv")


class CsvWithoutHeader(Csv):
    names = FLAT

    def put(self, table: pa.Table, path: Path) -> None:
        pacsv.write_csv(table, path, pacsv.WriteOptions(include_header=False))


class Json(Files):
    suffix, names = "jsonl", (*FLAT, "person", "tags")

    def put(self, table: pa.Table, path: Path) -> None:
        path.write_text("".join(json.dumps(row, default=float) + "\n" for row in table.to_pylist()))


class Avro(Files):
    suffix, names = "avro", ("email", "number", "big", "tags")

    def put(self, table: pa.Table, path: Path) -> None:
        kinds: dict[str, Any] = {"email": "string", "tags": {"type": "array", "items": "string"}}
        fields = [{"name": name, "type": ["null", kinds.get(name, "long")]} for name in table.column_names]
        with path.open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, table.to_pylist())


class Delta(Lake):
    def write(self, number: int) -> None:
        write_deltalake(str(self.folder), rows(8 * number), mode="append")

    def change(self) -> None:
        DeltaTable(str(self.folder)).delete(f"email = '{TEXT} 3'")
        DeltaTable(str(self.folder)).create_checkpoint()
        log = self.folder / "_delta_log" / f"{DeltaTable(str(self.folder)).version() + 1:020}.json"
        first = (self.folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        (metadata,) = [config for line in first if (config := json.loads(line).get("metaData"))]
        schema = json.loads(metadata["schemaString"])
        schema["fields"][1]["metadata"] = {"CURRENT_DEFAULT": f"'{TEXT}'"}
        metadata |= {"schemaString": json.dumps(schema)}
        metadata["configuration"] = {"delta.constraints.known": f"email <> '{TEXT}'"}
        log.write_text(json.dumps({"metaData": metadata}))


class Iceberg(Lake):
    names = ("email", "number")
    columns = (
        column(1, "id", "long"),
        column(2, "email", "string"),
        column(3, "number", "long"),
        column(4, "added", "string", initial_default=f"{TEXT} by default"),
    )
    version = 3

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.writer = IcebergWriter(self.folder, self.columns[:3], version=self.version)
        self.data: list[dict[str, Any]] = []

    def write(self, number: int) -> None:
        self.data.append(self.writer.data(rows(8 * number, self.names), **self.bounds()))
        self.writer.commit(self.data[-1])

    @staticmethod
    def bounds() -> dict[str, Any]:
        values = [{"key": 2, "value": TEXT.encode()}, {"key": 3, "value": struct.pack("<q", NUMBER)}]
        return {"lower_bounds": values, "upper_bounds": values}

    def change(self) -> None:
        removed_rows = pa.table({"email": [f"{TEXT} 3"], "number": pa.array([NUMBER], pa.int64())})
        equality = self.writer.equality_deletes(removed_rows, "email", "number", **self.bounds())
        positions = self.writer.position_deletes([(self.data[0]["file_path"], 1)])
        path = {"key": 2147483546, "value": self.data[0]["file_path"].encode()}
        positions["lower_bounds"] = positions["upper_bounds"] = [path, *self.bounds()["lower_bounds"]]
        self.writer.commit(equality, positions)
        self.writer.schemas.append(list(self.columns))
        self.writer.write_metadata()


class OldIceberg(Iceberg):
    version = 2
    columns = Iceberg.columns[:3]


class Hudi(Lake):
    names = ("text",)
    hudi_class: type[HudiCopyOnWrite] = HudiCopyOnWrite

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.table = self.hudi_class(self.folder)

    def write(self, number: int) -> None:
        self.table.append([(n, f"{TEXT} {n}", "2024-01-01") for n in range(8 * number, 8 * number + 8)])

    def change(self) -> None:
        self.table.delete([3])


class HudiWithLogs(Hudi):
    hudi_class = HudiMergeOnRead


class Lance(Lake):
    def write(self, number: int) -> None:
        lance.write_dataset(rows(8 * number, self.names), self.folder, mode="append")

    def change(self) -> None:
        lance.dataset(self.folder).delete(f"email = '{TEXT} 3'")


LAKES: list[type[Lake]] = [
    *(Parquet, Orc, Csv, CsvWithoutHeader, Json, Avro, Delta, Iceberg, OldIceberg, Hudi, HudiWithLogs, Lance)
]


def hidden_names(lake: type[Lake]) -> list[str]:
    if lake is CsvWithoutHeader:
        return [f"f{position}" for position in range(1, 5)]
    return [*lake.names, *(["added"] if lake is Iceberg else [])]


def hidden_config(folder: Path, lake: type[Lake], hidden_columns: list[str] | None = None) -> MetastoreConfig:
    names = hidden_names(lake) if hidden_columns is None else hidden_columns
    columns = {name: {"values": "hidden"} for name in names if name != "added"}
    if "added" in names:  # it does not exist in the first version
        columns = {"default": {"values": "hidden"}, "id": {"values": "shown"}}
    options: dict[str, Any] = {"options": {"meta_columns": True}} if issubclass(lake, Hudi) else {}
    if options and columns:
        columns["_hoodie_record_key"] = {"values": "shown"}
    table_settings = {"name": "t", "uri": str(folder / "lake"), "columns": columns, **options}
    table = TableConfig.model_validate(table_settings)
    return MetastoreConfig(root=str(folder / "root"), engine="auto", tables=[table])


def refresh_table(config: MetastoreConfig) -> None:
    refresh(config, config.tables[0], no_spark)


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of this process and its children.

    Children started by other tests use another folder.
    """
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.mark.parametrize("lake", LAKES, ids=lambda lake: lake.__name__)
def test_nothing_of_a_hidden_value_is_stored(
    tmp_path: Path,
    temporary_folder: Path,
    lake: type[Lake],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config, table = hidden_config(tmp_path, lake), lake(tmp_path)
    (tmp_path / "metastore.yaml").write_text(
        config.model_dump_json(exclude_unset=True, by_alias=True), encoding="utf-8"
    )
    outputs, key = [], "f0" if lake is CsvWithoutHeader else "id"

    def run(*command: str) -> None:
        done = CliRunner().invoke(cli, [*command, "--config", str(tmp_path / "metastore.yaml")])
        assert done.exit_code == 0, (command, done.output)
        outputs.append(done.output)

    with caplog.at_level(logging.DEBUG):
        table.write(0)
        refresh_table(config)
        table.write(1)
        metadata_cache.clear_process_cache()
        run("refresh", "t", "--dry-run")
        refresh_table(config)
        assert files_with(tmp_path / "root", *TOKENS) == []
        table.change()
        run("refresh", "t", "--dry-run", "--json")
        run("refresh", "t")
        append_versions(VersionStore(ObjectStore(config.root), "t"))
        assert files_with(tmp_path / "root", *TOKENS) == []
        commands = ["show t --json", "verify t --json", f"report t -o {tmp_path / 'page.html'}"]
        if lake in (Parquet, Delta, Iceberg):  # These read only the root, whose files are those of every format.
            commands += [
                "show t",
                "history t --json",
                "changes t --since 1 --json",
                "diff t --json",
                "check t --suggest",
            ]
        for command in (*commands, f"count t --where {key}>3"):
            run(*command.split())
        refresh(config, config.tables[0], no_spark, RefreshRequest(full=True))
    shown_text = "".join([*outputs, caplog.text, *capfd.readouterr()])
    shown_text += (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [token for token in TOKENS if isinstance(token, str) and token in shown_text] == []
    assert files_with(tmp_path / "root", *TOKENS) == []
    assert files_with(temporary_folder, *TOKENS) == []


@pytest.mark.parametrize("lake", [Csv, CsvWithoutHeader, Json, Iceberg], ids=lambda lake: lake.__name__)
def test_cached_metadata_from_before_a_column_was_hidden_are_dropped(tmp_path: Path, lake: type[Lake]) -> None:
    """Once a column is hidden, metadata that were cached before are not used any more.

    This holds for metadata in stored versions and in memory.
    """
    table, shown_config, config = lake(tmp_path), hidden_config(tmp_path, lake, []), hidden_config(tmp_path, lake)
    table.write(0)
    table.write(1)
    refresh_table(shown_config)
    refresh_table(config)
    newest = VersionStore(ObjectStore(config.root), "t").read(2)
    assert newest.metadata_cache
    assert not any(token in value for token in _texts() for value in newest.metadata_cache.values())


@pytest.mark.parametrize("lake", LAKES, ids=lambda lake: lake.__name__)
def test_a_plan_with_the_cache_equals_the_plan_without_it(tmp_path: Path, lake: type[Lake]) -> None:
    """A version stores a cache of its table's metadata.

    A snapshot that is read with this cache equals one that is read without it. With the cache, no file is read.
    """
    table, config = lake(tmp_path), hidden_config(tmp_path, lake)
    table.write(0)
    table.change()
    refresh_table(config)
    metadata_cache.clear_process_cache()
    cached_metadata = VersionStore(ObjectStore(config.root), "t").metadata_cache()
    read_snapshot = open_table_format(config.tables[0], MetadataCache(lambda: cached_metadata)).snapshot()
    scratch = open_table_format(config.tables[0], MetadataCache(ignore_process=True)).snapshot()
    assert read_snapshot == scratch
    assert read_snapshot.bytes_read == 0


def _texts() -> list[bytes]:
    return [token.encode() if isinstance(token, str) else token for token in TOKENS]


@pytest.mark.parametrize("lake", [Csv, Json, Delta], ids=lambda lake: lake.__name__)
def test_the_search_checks_find_a_shown_value(tmp_path: Path, lake: type[Lake]) -> None:
    """The search for tokens finds them in the root if no column is hidden.

    Otherwise, the tests that find no token would prove nothing.
    """
    lake(tmp_path).write(0)
    refresh_table(hidden_config(tmp_path, lake, []))
    for token in (TEXT, str(NUMBER), struct.pack("<q", NUMBER)):
        assert files_with(tmp_path / "root", token), token


def test_the_default_of_a_hidden_column_is_read_from_the_table(tmp_path: Path) -> None:
    """No version stores the default value of a hidden column.

    Queries read the default value from the metadata of the Iceberg table, because files without the column have this
    value in all rows.
    """
    table, config = Iceberg(tmp_path), hidden_config(tmp_path, Iceberg)
    table.write(0)
    table.writer.schemas.append(list(Iceberg.columns))
    table.writer.write_metadata()
    refresh_table(config)
    assert files_with(tmp_path / "root", *TOKENS) == []
    lookup = open_table(config.root, "t", table_locations=[str(table.folder)])
    for where, rows in (("id > 4", 3), (f"added = '{TEXT} by default' and id > 4", 3), ("added is null and id > 4", 0)):
        (added_column,) = lookup.filter(where, read=True).statistics(["added"])
        assert (added_column.value_count, added_column.null_count) == (rows, 0), where
        assert lookup.count(where).value == rows
