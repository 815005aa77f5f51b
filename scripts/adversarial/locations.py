"""Cases: locations that are not exactly the folder of one table.

A location is, for example, a part of a table, a folder above several tables, or a folder with files that are not data.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from scripts.adversarial.case import Columns, Refused, Written, case
from scripts.adversarial.delta_tables import COLUMNS
from scripts.adversarial.iceberg_tables import PLAIN, created

_REST = {"id": [1, 2], "x": [2.5, 3.5]}


@case("locations/delta-partition", "deltalake", "a partition's folder of a Delta table, removed files included")
def _(folder: Path) -> Written:
    write_deltalake(folder, pa.table({"id": [1, 2], "p": ["a", "b"]}), partition_by=["p"])
    DeltaTable(folder).delete("id = 1")
    return Written(Refused.with_words("Delta", str(folder)), "p=a")


@case("locations/two-deltas", "deltalake", "the folder above two Delta tables")
def _(folder: Path) -> Refused:
    for name in ("one", "two"):
        write_deltalake(folder / name, pa.table(COLUMNS))
    return Refused.with_words("Delta", "one")


@case("locations/delta-file", "deltalake", "one data file of a Delta table")
def _(folder: Path) -> Written:
    write_deltalake(folder, pa.table(COLUMNS))
    return Written(Refused.with_words("Delta", str(folder)), next(folder.glob("*.parquet")).name)


@case("locations/iceberg-data", "pyiceberg", "the folder data/ of an Iceberg table")
def _(folder: Path) -> Written:
    created(folder, PLAIN).append(pa.table(COLUMNS))
    return Written(Refused.with_words("Iceberg", str(folder / "t")), "t/data")


@case("locations/above-iceberg", "pyiceberg", "a folder several levels above an Iceberg table")
def _(folder: Path) -> Refused:
    created(folder / "a" / "b", PLAIN).append(pa.table(COLUMNS))
    return Refused.with_words("Iceberg", "a/b/t")


@case("locations/beside-a-delta", "deltalake", "plain files, and a Delta table in a subfolder")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table(_REST), folder / "a.parquet")
    write_deltalake(folder / "copy", pa.table(_REST))
    return Refused.with_words("Delta", "copy")


@case("locations/leftovers", "Python", "backups, temporary files, checksums and markers beside the data")
def _(folder: Path) -> Columns:
    pq.write_table(pa.table(_REST), folder / "a.parquet")
    data = (folder / "a.parquet").read_bytes()
    names = ("a.parquet.bak", "b.parquet.tmp", ".a.parquet.crc", "_SUCCESS", "a.parquet.crc", "a.parquet~", ".DS_Store")
    for name in names:
        (folder / name).write_bytes(data)
    below = folder / "_temporary" / "0" / "task_0"
    below.mkdir(parents=True)
    (below / "part-0.parquet").write_bytes(data)
    return _REST


@case("locations/unknown-file", "Python", "a file of an unknown type")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table(_REST), folder / "a.parquet")
    (folder / "notes.docx").write_bytes(b"PK\x03\x04")
    return Refused.with_words("notes.docx")


@case("locations/mixed", "Python", "Parquet and CSV files in one folder")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table(_REST), folder / "a.parquet")
    (folder / "b.csv").write_text("id,x\n1,2.5\n")
    return Refused.with_words("a.parquet", "b.csv")


@case("locations/link-to-itself", "Python", "a symbolic link to the folder above")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table(_REST), folder / "a.parquet")
    (folder / "loop").symlink_to(folder)
    return Refused.with_words("loop")


@case("locations/empty", "Python", "a folder without any file")
def _(folder: Path) -> Refused:
    return Refused.with_words(str(folder), "no data files")


@case("locations/other-metadata", "Python", "a folder metadata/ without an Iceberg table")
def _(folder: Path) -> Columns:
    pq.write_table(pa.table(_REST), folder / "a.parquet")
    (folder / "_metadata").write_bytes(b"summary")
    return _REST
