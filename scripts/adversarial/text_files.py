"""Cases: CSV and JSON files that readers easily get wrong."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import math
import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import zstandard

from scripts.adversarial.case import Columns, Refused, Written, case
from scripts.adversarial.spark import get_spark_session


def _rows(path: Path, rows: list[list[Any]], **settings: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, **settings).writerows(rows)


@case("csv/one-line-files", "Python", "three files of one row each, without a line end")
def _(folder: Path) -> Written:
    for number in range(3):
        (folder / f"{number}.csv").write_text(f"{number},x{number}")
    return Written({"f0": [0, 1, 2], "f1": ["x0", "x1", "x2"]}, options=("--option", "header=false"))


@case("csv/header-only", "Python", "a file with only a header and no line end, and one with rows")
def _(folder: Path) -> Written:
    (folder / "a.csv").write_text("id,name")
    (folder / "b.csv").write_text("id,name\n1,x\n2,y")
    return Written({"id": [1, 2], "name": ["x", "y"]}, options=("--option", "header=true"))


@case("csv/gzip-by-content", "Python", "a small gzip file that is named .csv")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_bytes(gzip.compress(b"id,price\n1,2.5\n2,3.5\n"))
    return {"id": [1, 2], "price": [2.5, 3.5]}


@case("csv/plain-named-gz", "Python", "a file named .csv.gz that is not compressed")
def _(folder: Path) -> Columns:
    (folder / "a.csv.gz").write_bytes(b"id,price\n1,2.5\n2,3.5\n")
    return {"id": [1, 2], "price": [2.5, 3.5]}


@case("csv/gzip-members", "Python", "two gzip members in one file, as after concatenation")
def _(folder: Path) -> Columns:
    (folder / "a.csv.gz").write_bytes(gzip.compress(b"id,price\n1,2.5\n") + gzip.compress(b"2,3.5\n"))
    return {"id": [1, 2], "price": [2.5, 3.5]}


@case("csv/zstd-frames", "zstandard", "two zstd frames in one file")
def _(folder: Path) -> Columns:
    pack = zstandard.ZstdCompressor().compress
    (folder / "a.csv.zst").write_bytes(pack(b"id,price\n1,2.5\n") + pack(b"2,3.5\n"))
    return {"id": [1, 2], "price": [2.5, 3.5]}


@case("csv/bzip2", "Python", "bzip2")
def _(folder: Path) -> Columns:
    (folder / "a.csv.bz2").write_bytes(bz2.compress(b"id,price\n1,2.5\n2,3.5"))
    return {"id": [1, 2], "price": [2.5, 3.5]}


@case("csv/cut-gzip", "Python", "a truncated gzip file")
def _(folder: Path) -> Refused:
    data = gzip.compress(b"id,price\n" + b"".join(b"%d,%d.5\n" % (n, n * 7919 % 1000) for n in range(5000)))
    (folder / "a.csv.gz").write_bytes(data[: len(data) // 2])
    return Refused.with_words("a.csv.gz")


@case("csv/postcodes", "pandas", "texts of digits with leading zeros")
def _(folder: Path) -> Columns:
    columns = {"id": [1, 2, 3], "postcode": ["01067", "10115", "80331"]}
    pd.DataFrame(columns).to_csv(folder / "a.csv", index=False)
    return columns


@case("csv/postcodes-later", "pandas", "leading zeros in the second file only")
def _(folder: Path) -> Columns:
    pd.DataFrame({"id": [1, 2], "postcode": ["10115", "80331"]}).to_csv(folder / "a.csv", index=False)
    pd.DataFrame({"id": [3], "postcode": ["01067"]}).to_csv(folder / "b.csv", index=False)
    return {"id": [1, 2, 3], "postcode": ["10115", "80331", "01067"]}


@case("csv/zero-itself", "Python", "0, -0 and 0.5 are numbers, 00 is a text")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text("a,b,c\n0,0.5,00\n7,0,01\n")
    return {"a": [0, 7], "b": [0.5, 0.0], "c": ["00", "01"]}


@case("csv/null-makes-float", "pandas", "integers, which pandas writes as floats in a file with a null")
def _(folder: Path) -> Columns:
    pd.DataFrame({"id": [1, 2], "n": [10, 20]}).to_csv(folder / "a.csv", index=False)
    pd.DataFrame({"id": [3, 4], "n": [30, None]}).to_csv(folder / "b.csv", index=False)
    return {"id": [1, 2, 3, 4], "n": [10.0, 20.0, 30.0, None]}


@case("csv/long-and-float", "Python", "integers beyond 2^53 in one file, floats in another: a column of text")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text(f"id,n\n1,{2**53 + 1}\n")
    (folder / "b.csv").write_text("id,n\n2,1.5\n")
    return {"id": [1, 2], "n": [str(2**53 + 1), "1.5"]}


@case("csv/spaces", "Python", "spaces after the delimiters")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text("id, ok, name\n1, true, ann\n2, false, bob\n")
    return {"id": [1, 2], " ok": [True, False], " name": [" ann", " bob"]}


@case("csv/quote-all", "Python", "every value in quotes")
def _(folder: Path) -> Columns:
    _rows(folder / "a.csv", [["id", "t"], [1, 'say "hi"'], [2, "a,b\nc"]], quoting=csv.QUOTE_ALL)
    return {"id": [1, 2], "t": ['say "hi"', "a,b\nc"]}


@case("csv/empty-texts", "Python", "an empty text in quotes, and an empty field, which is null")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text('id,t\n1,""\n2,\n3,x\n')
    return {"id": [1, 2, 3], "t": ["", None, "x"]}


@case("csv/spark-escapes", "Spark", "quotes in values, which Spark escapes with a backslash")
def _(folder: Path) -> Refused:
    _spark_quotes(folder)
    return Refused.with_words("escape")


@case("csv/spark-escapes-option", "Spark", "the same, with the option `escape`")
def _(folder: Path) -> Written:
    columns = _spark_quotes(folder)
    return Written(columns, options=("--option", "escape=\\", "--option", "header=true"))


def _spark_quotes(folder: Path) -> Columns:
    columns = {"id": [1, 2, 3], "t": ['say "hi", she said', "plain", 'an "odd" one']}
    rows = list(zip(*columns.values(), strict=True))
    frame = get_spark_session().createDataFrame(rows, "id int, t string").coalesce(1)
    frame.write.mode("overwrite").csv(str(folder), header=True)
    return columns


@case("csv/spark-types", "Spark", "dates, timestamps, booleans and nulls as Spark writes them")
def _(folder: Path) -> Columns:
    rows = [
        (1, date(2024, 1, 31), datetime(2024, 1, 31, 12, 30), True, 1.5),
        (2, date(1969, 12, 31), datetime(1970, 1, 1), False, None),
    ]
    frame = get_spark_session().createDataFrame(rows, "id long, d date, t timestamp, b boolean, x double").coalesce(1)
    frame.write.mode("overwrite").csv(str(folder), header=True)
    return {
        "id": [1, 2],
        "d": [row[1] for row in rows],
        "t": [f"{row[2].isoformat()}+00:00" for row in rows],
        "b": [True, False],
        "x": [1.5, None],
    }


@case("csv/duckdb-types", "DuckDB", "all kinds of values as DuckDB writes them")
def _(folder: Path) -> Columns:
    query = """
        select * from (values
            (1, date '2024-01-31', timestamp '2024-01-31 12:30:00.123456', time '23:59:59.5', true, 'a,"b"', 1e300),
            (2, date '1582-10-04', timestamp '0044-03-15 00:00:00', time '00:00:00', false, 'nul', -0.0::double))
        as t(id, d, ts, tm, b, s, x)
    """
    duckdb.sql(f"copy ({query}) to '{folder}/a.csv' (header)")
    return {
        "id": [1, 2],
        "d": ["2024-01-31", "1582-10-04"],
        "ts": ["2024-01-31T12:30:00.123456", "0044-03-15T00:00:00"],
        "tm": ["23:59:59.5", "00:00:00"],
        "b": [True, False],
        "s": ['a,"b"', "nul"],
        "x": [1e300, 0.0],
    }


@case("csv/polars-floats", "Polars", "NaN, infinities and nulls beside numbers")
def _(folder: Path) -> Columns:
    columns = {"id": [1, 2, 3, 4, 5], "x": [1.5, math.nan, math.inf, -math.inf, None]}
    pl.DataFrame(columns).write_csv(folder / "a.csv")
    return columns


@case("csv/duckdb-partitions", "DuckDB", "folders with percent-encoded values and leading zeros")
def _(folder: Path) -> Columns:
    query = "select * from (values (1, '01', 'a/b'), (2, '02', 'c d'), (3, '02', 'é')) t(id, month, place)"
    duckdb.sql(f"copy ({query}) to '{folder}' (format csv, header, partition_by (month, place), overwrite_or_ignore)")
    return {"id": [1, 2, 3], "month": ["01", "02", "02"], "place": ["a/b", "c d", "é"]}


@case("csv/bom", "pandas", "a byte order mark before the names")
def _(folder: Path) -> Columns:
    columns = {"id": [1, 2], "name": ["é", "ü"]}
    pd.DataFrame(columns).to_csv(folder / "a.csv", index=False, encoding="utf-8-sig")
    return columns


@case("csv/utf-16", "pandas", "UTF-16 with a byte order mark, with options.encoding")
def _(folder: Path) -> Written:
    columns = {"id": [1, 2], "name": ["é", "ü"]}
    pd.DataFrame(columns).to_csv(folder / "a.csv", index=False, encoding="utf-16")
    return Written(columns, options=("--option", "encoding=utf-16"))


@case("csv/latin-1", "pandas", "ISO 8859-1 without options.encoding")
def _(folder: Path) -> Refused:
    pd.DataFrame({"id": [1, 2], "name": ["é", "ü"]}).to_csv(folder / "a.csv", index=False, encoding="latin-1")
    return Refused.with_words("a.csv", "encoding")


@case("csv/carriage-returns", "Python", "lines that end with only a carriage return")
def _(folder: Path) -> Columns:
    _rows(folder / "a.csv", [["id", "x"], [1, 2.5], [2, 3.5]], lineterminator="\r")
    return {"id": [1, 2], "x": [2.5, 3.5]}


@case("csv/ragged", "Python", "a row with too few values")
def _(folder: Path) -> Refused:
    (folder / "a.csv").write_text("id,x,y\n1,2,3\n4,5\n")
    return Refused.with_words("a.csv", "line 3")


@case("csv/twice-named", "Python", "two columns with the same name")
def _(folder: Path) -> Refused:
    (folder / "a.csv").write_text("id,x,x\n1,2,3\n")
    return Refused.with_words("a.csv", "'x'")


@case("csv/semicolons", "pandas", "semicolons between the values, commas in the numbers")
def _(folder: Path) -> Refused:
    pd.DataFrame({"id": [1, 2], "x": [1.5, 2.5]}).to_csv(folder / "a.csv", index=False, sep=";", decimal=",")
    return Refused.with_words("a.csv", "line 2")


@case("csv/not-available", "pandas", "NA for null: a column of text without options.null_values")
def _(folder: Path) -> Written:
    pd.DataFrame({"id": [1, 2], "x": [1.5, None]}).to_csv(folder / "a.csv", index=False, na_rep="NA")
    return Written({"id": [1, 2], "x": [1.5, None]}, options=("--option", 'null_values=["NA"]'))


@case("csv/late-text", "Python", "300,000 integers, then a text")
def _(folder: Path) -> Columns:
    rows = [[n] for n in range(300_000)]
    _rows(folder / "a.csv", [["order_id"], *rows, ["n/a"]])
    return {"order_id": [*(str(n) for n in range(300_000)), "n/a"]}


@case("csv/open-quote", "Python", "an unclosed quote")
def _(folder: Path) -> Refused:
    (folder / "a.csv").write_text('id,t\n1,"never closed\n2,x\n3,y\n')
    return Refused.with_words("a.csv", "quote")


@case("csv/unsigned", "Python", "integers beyond 2^63")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text(f"id,n\n1,{2**64 - 1}\n2,{2**63}\n")
    return {"id": [1, 2], "n": [2**64 - 1, 2**63]}


@case("csv/empty-file", "Python", "a file of 0 bytes, and one with rows")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text("id,x\n1,2.5\n")
    (folder / "b.csv").write_text("")
    return {"id": [1], "x": [2.5]}


@case("csv/clash", "pandas", "numbers in one file, texts in another: a column of text")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text("id,x\n1,10\n")
    (folder / "b.csv").write_text("id,x\n2,ten\n")
    return {"id": [1, 2], "x": ["10", "ten"]}


@case("csv/lines-in-values", "pandas", "all kinds of line breaks in values")
def _(folder: Path) -> Columns:
    columns = {"id": [1, 2, 3], "t": ["a\nb", "c\r\nd", "plain"]}
    pd.DataFrame(columns).to_csv(folder / "a.csv", index=False)
    return columns


@case("json/pandas", "pandas", "JSON lines with nulls and unicode")
def _(folder: Path) -> Columns:
    columns = {"id": [1, 2], "name": ["é", None], "x": [1.5, None]}
    pd.DataFrame(columns).to_json(folder / "a.json", orient="records", lines=True)
    return columns


@case("json/spark", "Spark", "keys that are missing because their values are null")
def _(folder: Path) -> Columns:
    rows = [(1, "a", None), (2, None, 2.5), (3, None, None)]
    frame = get_spark_session().createDataFrame(rows, "id long, name string, x double").coalesce(1)
    frame.write.mode("overwrite").json(str(folder))
    return {"id": [1, 2, 3], "name": ["a", None, None], "x": [None, 2.5, None]}


@case("json/polars", "Polars", "nested values")
def _(folder: Path) -> Columns:
    columns = {"id": [1, 2], "tags": [["a", "b"], []], "place": [{"x": 1, "y": None}, {"x": None, "y": 2.5}]}
    pl.DataFrame(columns).write_ndjson(folder / "a.ndjson")
    return columns


@case("json/one-line", "Python", "one line without a line end, compressed, without a suffix for that")
def _(folder: Path) -> Columns:
    (folder / "a.json").write_bytes(gzip.compress(b'{"id": 1, "x": 2.5}'))
    return {"id": [1], "x": [2.5]}


@case("json/bom", "Python", "a byte order mark")
def _(folder: Path) -> Columns:
    (folder / "a.json").write_bytes(b'\xef\xbb\xbf{"id": 1}\n{"id": 2}\n')
    return {"id": [1, 2]}


@case("json/integers-and-floats", "Python", "integers in one file and floats in another")
def _(folder: Path) -> Columns:
    (folder / "a.json").write_text('{"n": 1}\n{"n": 2}\n')
    (folder / "b.json").write_text('{"n": 2.5}\n')
    return {"n": [1.0, 2.0, 2.5]}


@case("json/large-integers", "Python", "integers beyond 2^64")
def _(folder: Path) -> Columns:
    (folder / "a.json").write_text(f'{{"n": {2**64}}}\n{{"n": {-(2**63)}}}\n')
    return {"n": [2**64, -(2**63)]}


@case("json/key-twice", "Python", "a repeated key in one object")
def _(folder: Path) -> Refused:
    (folder / "a.json").write_text('{"id": 1}\n{"id": 2, "id": 3}\n')
    return Refused.with_words("a.json", "line 2")


@case("json/array", "pandas", "an array instead of lines")
def _(folder: Path) -> Refused:
    pd.DataFrame({"id": [1, 2]}).to_json(folder / "a.json", orient="records")
    return Refused.with_words("a.json", "array")


@case("json/pretty", "Python", "an object over several lines")
def _(folder: Path) -> Refused:
    (folder / "a.json").write_text(json.dumps({"id": 1, "x": {"y": 2}}, indent=2))
    return Refused.with_words("a.json", "line 1")


@case("json/not-a-number", "Python", "NaN, which is not JSON, but which Spark reads")
def _(folder: Path) -> Columns:
    (folder / "a.json").write_text(json.dumps({"x": math.nan}) + "\n" + json.dumps({"x": 1.5}) + "\n")
    return {"x": [math.nan, 1.5]}


@case("json/deep", "Python", "10,000 nested arrays")
def _(folder: Path) -> Refused:
    (folder / "a.json").write_text('{"x": ' + "[" * 10_000 + "]" * 10_000 + "}\n")
    return Refused.with_words("a.json")


@case("csv/backslash-n", "Python", "\\\\N for null, as MySQL and Hive write it, with options.null_values")
def _(folder: Path) -> Written:
    (folder / "a.csv").write_text("id,x,t\n1,2.5,a\n2,\\N,\\N\n")
    return Written({"id": [1, 2], "x": [2.5, None], "t": ["a", None]}, options=("--option", 'null_values=["\\\\N"]'))


@case("csv/zip", "Python", "a zip archive")
def _(folder: Path) -> Refused:
    with zipfile.ZipFile(folder / "a.csv.zip", "w") as archive:
        archive.writestr("a.csv", "id,x\n1,2.5\n")
    return Refused.with_words("a.csv.zip")


@case("csv/other-order", "pandas", "the same columns in another order, and one more")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text("id,x\n1,2.5\n")
    (folder / "b.csv").write_text("x,id,new\n3.5,2,true\n")
    return {"id": [1, 2], "x": [2.5, 3.5], "new": [None, True]}


@case("csv/exponents", "Python", "numbers with exponents and signs")
def _(folder: Path) -> Columns:
    (folder / "a.csv").write_text("id,x\n1,1e3\n2,-2.5E-2\n3,+7\n")
    return {"id": [1, 2, 3], "x": [1000.0, -0.025, 7.0]}


@case("csv/hash-lines", "Python", "a comment in the first line")
def _(folder: Path) -> Refused:
    (folder / "a.csv").write_text("# made by hand\nid,x\n1,2.5\n2,3.5\n")
    return Refused.with_words("a.csv")


@case("csv/escaped-by-python", "Python", "backslashes before delimiters, without quotes, with options.escape")
def _(folder: Path) -> Written:
    columns = {"id": [1, 2], "t": ["a,b", "c\\d"]}
    rows = [list(columns), *(list(row) for row in zip(*columns.values(), strict=True))]
    _rows(folder / "a.csv", rows, quoting=csv.QUOTE_NONE, escapechar="\\")
    return Written(columns, options=("--option", "escape=\\", "--option", "quote="))


@case("csv/quoted-numbers", "pandas", "numbers in quotes")
def _(folder: Path) -> Columns:
    columns = {"id": [1, 2], "x": [1.5, None]}
    pd.DataFrame(columns).to_csv(folder / "a.csv", index=False, quoting=csv.QUOTE_ALL)
    return columns


@case("json/duckdb", "DuckDB", "JSON lines with times, huge numbers and nested lists")
def _(folder: Path) -> Columns:
    query = """
        select * from (values (1, timestamp '2024-01-31 12:00:00', [[1], [2, 3]], 'é"\\'), (2, null, [], null))
        as t(id, ts, l, s)
    """
    duckdb.sql(f"copy ({query}) to '{folder}/a.json'")
    return {"id": [1, 2], "ts": ["2024-01-31 12:00:00", None], "l": [[[1], [2, 3]], []], "s": ['é"\\', None]}


@case("json/late-key", "Python", "a key that only the last line has")
def _(folder: Path) -> Columns:
    lines = [json.dumps({"id": number}) for number in range(50_000)]
    (folder / "a.json").write_text("\n".join([*lines, '{"id": -1, "late": "x"}']))
    return {"id": [*range(50_000), -1], "late": [*([None] * 50_000), "x"]}
