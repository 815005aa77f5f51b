"""Cases: files that declare more than they contain, or contain more than a reader should accept."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from scripts.adversarial.case import Columns, Refused, Written, case
from scripts.adversarial.delta_tables import COLUMNS
from scripts.adversarial.iceberg_tables import PLAIN, created


@case("hostile/metadata-bomb", "Python", "1 MB of gzip metadata that decompress to 1 GB")
def _(folder: Path) -> Written:
    created(folder, PLAIN).append(pa.table(COLUMNS))
    newest = max((folder / "t" / "metadata").glob("*.metadata.json"))
    text = newest.read_bytes().rstrip()[:-1] + b"," + b" " * (1 << 30) + b'"x": 1}'
    newest.unlink()
    newest.with_name(newest.name.replace(".metadata.json", ".gz.metadata.json")).write_bytes(gzip.compress(text, 1))
    return Written(Refused.with_words(".gz.metadata.json"), "t")


@case("hostile/deep-metadata", "Python", "metadata with 100,000 nested arrays")
def _(folder: Path) -> Written:
    created(folder, PLAIN).append(pa.table(COLUMNS))
    newest = max((folder / "t" / "metadata").glob("*.metadata.json"))
    text = newest.read_text().rstrip()[:-1] + ',"x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    newest.write_text(text)
    return Written(Refused.with_words(newest.name), "t")


@case("hostile/deep-commit", "Python", "a Delta commit with 100,000 nested arrays")
def _(folder: Path) -> Refused:
    write_deltalake(folder, pa.table(COLUMNS))
    log = folder / "_delta_log" / "00000000000000000000.json"
    log.write_text(log.read_text() + '{"commitInfo": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    return Refused.with_words(log.name)


@case("hostile/manifest-length", "fastavro", "a manifest list whose block size is an exabyte")
def _(folder: Path) -> Written:
    created(folder, PLAIN).append(pa.table(COLUMNS))
    (manifests,) = (folder / "t" / "metadata").glob("snap-*.avro")
    data = manifests.read_bytes()
    sync = data[-16:]
    at = data.index(sync) + len(sync)
    # One record, and as the number of bytes 2^60 in the variable length of Avro.
    claim = b"\x02" + bytes.fromhex("808080808080808020")
    manifests.write_bytes(data[:at] + claim + data[at + 2 :])
    return Written(Refused.with_words(manifests.name), "t")


@case(
    "hostile/flipped-footer",
    "Python",
    "Parquet footers damaged at every fifth byte, beside a sound file",
)
def _(folder: Path) -> Refused:
    pq.write_table(pa.table({"n": list(range(100)), "s": ["x"] * 100}), folder / "sound.parquet")
    data = (folder / "sound.parquet").read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    for at in range(len(data) - 8 - length, len(data) - 8, 5):
        damaged_bytes = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        (folder / f"damaged-{at}.parquet").write_bytes(damaged_bytes)
    return Refused.with_words("damaged-")


@case("hostile/footer-length", "Python", "a Parquet footer whose size exceeds that of its file")
def _(folder: Path) -> Refused:
    pq.write_table(pa.table({"n": [1]}), folder / "a.parquet")
    data = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(data[:-8] + (2**31 - 1).to_bytes(4, "little") + data[-4:])
    return Refused.with_words("a.parquet")


@case("hostile/many-digits", "Python", "a number of a million digits in a commit")
def _(folder: Path) -> Refused:
    write_deltalake(folder, pa.table(COLUMNS))
    log = folder / "_delta_log" / "00000000000000000000.json"
    log.write_text(log.read_text().replace('"size":', f'"size":{"9" * 1_000_000}0', 1))
    return Refused.with_words(log.name)


@case("hostile/long-line", "Python", "a CSV file with one value of 200 MB")
def _(folder: Path) -> Refused:
    with (folder / "a.csv").open("w") as file:
        file.write('id,text\n1,"')
        for _ in range(200):
            file.write("x" * (1 << 20))
        file.write('"\n')
    return Refused.with_words("a.csv")


@case("hostile/names", "PyArrow", "columns named by control characters, quotes and a megabyte of text")
def _(folder: Path) -> Columns:
    columns = {"\x00": [1], "\x1b[31m": [2], "'; drop table": [3], "x" * 100_000: [4], "\u202e": [5]}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return columns


@case("hostile/checkpoint-pointer", "Python", "a pointer to a missing checkpoint")
def _(folder: Path) -> Columns:
    write_deltalake(folder, pa.table(COLUMNS))
    (folder / "_delta_log" / "_last_checkpoint").write_text(json.dumps({"version": 10**18, "size": 1}))
    return COLUMNS


@case("hostile/avro-schema", "fastavro", "a schema with 1,000 nested records")
def _(folder: Path) -> Refused:
    with (folder / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}, [{"n": 1}])
    data = (folder / "a.avro").read_bytes()
    levels = [f'{{"type": "record", "name": "r{level}", "fields": [{{"name": "f", "type": ' for level in range(1000)]
    deep = "".join([*levels, '"int"', *("}]}" for _ in levels)]).encode()
    length_at = data.index(b"avro.schema") + len(b"avro.schema")
    end = data.index(b"}", data.index(b"fields")) + 3
    (folder / "a.avro").write_bytes(data[:length_at] + _varint(len(deep)) + deep + data[end:])
    return Refused.with_words("a.avro")


def _varint(number: int) -> bytes:
    remainder, encoded_bytes = number * 2, bytearray()
    while remainder > 127:
        encoded_bytes.append(remainder & 127 | 128)
        remainder >>= 7
    return bytes([*encoded_bytes, remainder])
