"""Parquet footers that Arrow refuses or misunderstands are read.

Hive, Java libraries or Presto wrote these footers, or the footers have an invalid Arrow schema.
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.readers.parquet import ParquetColumns
from metastore_assets.formats.readers.parquet_footer import REFUSED, read_lenient_metadata
from tests.formats.oracle import read_columns
from tests.formats.readers.hive_groups import with_groups_of_hive

_TABLE = pa.table(
    {
        "before": pa.array([1, 2, 3]),
        "map": pa.array([[("a", 1.5)], None, []], pa.map_(pa.string(), pa.float64())),
        "nulls": pa.nulls(3),
        "nested": pa.array(
            [{"m": [(True, [1])]}, {"m": None}, None], pa.struct([("m", pa.map_(pa.bool_(), pa.list_(pa.int32())))])
        ),
        "after": pa.array(["x", None, "z"]),
    }
)


def _as_hive(path: Path) -> None:
    pq.write_table(_TABLE, path, row_group_size=2, store_schema=False)
    assert with_groups_of_hive(path) == 2


def test_maps_of_hive_are_read(tmp_path: Path) -> None:
    """All columns of a file are read although it has maps as Hive writes them, which Arrow refuses.

    Arrow refuses the logical type that Hive gives to the inner group of a map. The file also has a column of nulls.
    """
    path = tmp_path / "x.parquet"
    _as_hive(path)
    with pytest.raises(OSError, match=REFUSED.pattern):
        pq.ParquetFile(path)
    columns = ParquetColumns(pa.OSFile(str(path), "rb"))
    assert columns.row_count == 3
    assert [field.name for field in columns.fields] == _TABLE.column_names
    for index, name in enumerate(_TABLE.column_names):
        assert [value for chunk in columns.read(index) for value in chunk.to_pylist()] == _TABLE[name].to_pylist()


def test_intervals_of_java_are_read(tmp_path: Path) -> None:
    """Intervals in files of Java's Parquet library are read as 12 bytes.

    Arrow reads nulls in their place.
    """
    path = tmp_path / "x.parquet"
    values = [bytes(range(12)), None, bytes(12)]
    table = pa.table({"before": [1, 2, 3], "x": pa.array(values, pa.binary(12)), "nulls": pa.nulls(3)})
    pq.write_table(table, path, store_schema=False)
    _as_interval(path)
    assert pq.read_table(path)["x"].to_pylist() == [None] * 3
    columns = ParquetColumns(pa.OSFile(str(path), "rb"))
    assert [field.type for field in columns.fields] == [pa.int64(), pa.binary(12), pa.null()]
    assert [value for chunk in columns.read(1) for value in chunk.to_pylist()] == values
    snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()
    assert read_columns(snapshot) == table.to_pydict()


def _as_interval(path: Path) -> None:
    """Give the column `x` the converted type INTERVAL and the logical type UNKNOWN."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    column = b"\x18\x01x"
    assert footer.count(column + b"\x00") == 1
    footer = footer.replace(column + b"\x00", column + b"\x25\x2a\x4c\xbc\x00\x00\x00")
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_enumerations_are_texts(tmp_path: Path) -> None:
    """Columns of the logical type ENUM, which Arrow reads as bytes, are read as texts.

    Their bounds are texts, too.
    """
    path = tmp_path / "x.parquet"
    table = pa.table({"n": [1, 2, 3], "e": ["RED", None, "BLUE"], "l": [["x"], None, []]})
    pq.write_table(table, path, store_schema=False)
    data = path.read_bytes()
    for name in (b"\x01e", b"\x07element"):
        text = b"\x18" + name + b"\x25\x00\x4c\x1c"
        assert data.count(text) == 1
        data = data.replace(text, text[:-3] + b"\x08\x4c\x4c")
    path.write_bytes(data)
    assert pq.read_schema(path).field("e").type == pa.binary()
    table_format = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table_format.snapshot()
    assert read_columns(snapshot) == table.to_pydict()
    bounds = table_format.bounds(snapshot, "e").to_pylist()[0]
    assert (bounds["null_count"], bounds["minimum"], bounds["maximum"]) == (1, "BLUE", "RED")


@pytest.mark.parametrize("stored_schema", ["", "!", "AAAA"])
def test_an_arrow_schema_that_arrow_cannot_decode_is_ignored(tmp_path: Path, stored_schema: str) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"n": [1, None], "ARROW:schema": ["a", "ARROW:schema"]})
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"before": "ARROW:schema", "ARROW:schema": stored_schema, "after": "x"})
    with pytest.raises(pa.ArrowInvalid):
        pq.ParquetFile(path)
    assert read_columns(open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()) == table.to_pydict()


def test_integers_of_128_bits_of_polars_are_their_bytes(tmp_path: Path) -> None:
    """Integers of 128 bits in a file that Polars wrote are read as 16 bytes each.

    Arrow has no such integers, and cannot open the file.
    """
    path = tmp_path / "x.parquet"
    pl.DataFrame({"n": [1, 2], "big": pl.Series([2**100, None], dtype=pl.Int128)}).write_parquet(path)
    with pytest.raises(pa.ArrowNotImplementedError):
        pq.ParquetFile(path)
    table_format = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table_format.snapshot()
    stored_rows = duckdb.sql(f"select big from '{path}'").fetchall()
    assert read_columns(snapshot) == {"n": [1, 2], "big": [value for (value,) in stored_rows]}
    assert snapshot.schema.field("big").type == pa.binary(16)
    assert table_format.bounds(snapshot, "big")["null_count"].to_pylist() == [1]


def test_an_unreadable_file_without_arrow_schema_keeps_its_error(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(pa.ArrowInvalid, match="magic bytes"):
        ParquetColumns(pa.OSFile(str(path), "rb"))


def _packed(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


_OPTIONAL_KEYS = (
    "c-oCrL2J}N6rM~b)3laCq3@Asz(w4!ExL5u?xw<C^dLp{uq>r`SdgSUg~g<;+ik5sKq=x;@h?;q5$RE{p8Nsgp$88lJ@w?-H_5I|"
    "wHBFVUS8fe-#7E#OPV)Z6<|=N@$~V}kERDUxe_E}oH1r{Q_q)~K_=8wMBytmo*%vbBF{!&O3@VXY5dsx_F^K3OA&$zZGa7tB^ocE"
    "ynj1(K6000S7{s^9=)<Wf@!Ed5I2~?O<~CqdvxrAJIP(g2<eW1yC_^=a`!gpM3;tyrW+UykV61L{sE{-3atq(HozFW`aUb_p$%;$"
    "0u<WmKod2chX)2M4<7e8tfY_>f5@SQnbzkeBcTLTxkHu%Z(O7IRpE@@SC8)Pgz>fl!C<_|9h2S^S;I@$k#D8ZbY)B{Wuu<06mfT}"
    "4_pUERIC!U-p>=8Nw^6@lkx#+MxW6Q1t!1&BJLJv8Xw4~Gkb2^XC92ZMJC-vBRSci<^YB^wz2Ko^_nOd5tV}u3cB2!)lZd#;TsDs"
    ";yV*+Of&Mo8MD2loK0-{oqAT9Y(`nic{!Eold3ZOWWf}EH{n)J<E{~>$r+|ar{eeKmvPxYF#c2NR0A;lY60TDfF*X4qO-(u=UTxP"
    "e~;IxrRXA|)aFyh-9JQ*E%5MIKs^<iaI4Ig)RJAIli0$Re@JxW`S0SihoW>&G$&13&m<tjeG{c`lbO<ocP1b9x_#9vCmS6Vm)FBY"
    "QG@M<$!4sWb7wQ`J=j+L>q)P$qk3E2jrBsMTnWmvg;KQLjXQ<4aCLSySg2L!=Tv2WK2p(*xy3M8tA&B822r&#8!ZGuSebU))Pnho"
    "mFV}-q@UL>N*b#S"
)
"""A file of the Java library with the columns `m` (map of texts), `l` (list of maps, whose entries have the converted
type MAP_KEY_VALUE) and `i` (interval). The keys of the maps are optional, as old versions of Presto declare them."""
_NULL_KEY = (
    "c-n1}K}!Nr5P)Z&W)@xq=dn-rummm&Ca$`!ftNajgomYb5WD&W$yM9bihf2OI(F&W&*%qq?bxMzf1r80ghDazy<z5kGjC>i-toDO"
    "fJKt^%h&h5fsD)yW&jufq)6ywK+Xe_x5tmq%>PUZG*Tk32_0x56PyW)fjEsZk!M0r$4H_S0KWhc!r)o#ak^LA;2wHB!7h4QhzuO2"
    "D~+sQCBKu__papq<;tHdC8hy$C8npyQ-Zz`$C14g-vSk4h^hq!=0piHqN9bISQUeW@E-43*=}1^f~sEz-A#e2QNCta<j)#5K;>e8"
    "b0zP^**xx9UN>nqIXRTKtgTlnn;`&yWmw?v8lC`u(m1oSqza1G^S9A>A){J28_G#->W5O_m3MwPpGeTp=6-a&l#9bKGFLLX8PBGs"
    "U9;U<-7E*o@nmR@{6T%-w%Sg!A?;=}kik)-<GZ7_?@GrF9J?O0T-UcNqDu2qBYdDbJ^CL%Alp}S"
)
"""A file like `_OPTIONAL_KEYS`, with a null as a key."""


def test_maps_with_optional_keys_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(_packed(_OPTIONAL_KEYS))
    with pytest.raises(pa.ArrowInvalid, match=REFUSED.pattern):
        pq.ParquetFile(path)
    table = open_table_format(TableConfig(name="t", uri=str(tmp_path)))
    snapshot = table.snapshot()
    assert snapshot.schema.field("m").type == pa.map_(pa.string(), pa.int32())
    assert read_columns(snapshot) == {
        "m": [[("a", 1), ("b", None)], [], None],
        "l": [[[(1, "x")], None], None, None],
        "i": [bytes(range(12)), None, None],
    }
    assert table.bounds(snapshot, "m.key")["null_count_guarantee"].to_pylist() == ["absent"]


def test_a_null_as_a_key_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(_packed(_NULL_KEY))
    snapshot = open_table_format(TableConfig(name="t", uri=str(tmp_path))).snapshot()
    with pytest.raises(FragmentError, match=r"x\.parquet.*'m'.*NULL"):
        read_columns(snapshot)


def test_a_valid_footer_is_not_changed(tmp_path: Path) -> None:
    """For a valid footer, `read_lenient_metadata` returns the metadata that pyarrow reads.

    The file has maps and a column of nulls.
    """
    path = tmp_path / "x.parquet"
    pq.write_table(_TABLE, path)
    with pa.OSFile(str(path), "rb") as source:
        assert read_lenient_metadata(source).equals(pq.read_metadata(path))


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_a_broken_footer_is_an_error(tmp_path: Path, cut: int) -> None:
    """A truncated footer is an error, and so is an empty one of a file that is marked as encrypted."""
    path = tmp_path / "x.parquet"
    _as_hive(path)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8][:cut]
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + (b"PAR1" if cut else b"PARE"))
    with pa.OSFile(str(path), "rb") as source, pytest.raises((pa.ArrowInvalid, OSError)):
        read_lenient_metadata(source)
