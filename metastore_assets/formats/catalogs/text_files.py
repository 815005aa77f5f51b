"""Translate declarations of text files in catalogs to reader options of plain files.

An unknown setting is refused, because it may decide where a value ends, or what is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Columns = Sequence[tuple[str, str]]
Reader = tuple[dict[str, Any], dict[str, str]]
"""Reader options, and types by column."""

_BY_VALUES = ("timestamp", "timestamp_ltz", "timestamp with local time zone")
"""Types whose values depend on the reader's time zone; they are detected from the values instead."""
_COMPLEX = re.compile(r"(array|map|struct|uniontype)<.*|binary|void|interval.*", re.IGNORECASE | re.DOTALL)
_CONTROL_A = "\x01"
_HARMLESS = {"path", "serialization.format", "compression", "codec", "mergeschema", "samplingratio", "inferschema"}
_CSV_KNOWN = {"header", "sep", "delimiter", "quote", "escape", "encoding", "charset", "enforceschema", "mode"}
_REFUSED_OF_HIVE = (
    "skip.footer.line.count",
    "serialization.last.column.takes.rest",
    "timestamp.formats",
    "textinputformat.record.delimiter",
)


def spark_csv(settings: Mapping[str, str], columns: Columns) -> Reader:
    """Return the options of a table with Spark's source `csv`. Raises ValueError for an unknown setting."""
    values = _check_known(settings, "csv", _CSV_KNOWN)
    if values.get("mode", "").upper() == "DROPMALFORMED":
        raise ValueError("mode = 'DROPMALFORMED' leaves out rows, which no statistics can know of")
    # Spark reads an empty text as null, even in quotes.
    options: dict[str, Any] = {"kind": "csv", "null_values": [""]}
    options["header"] = values.get("header", "false").lower() == "true"
    options["delimiter"] = _one(values.get("sep", values.get("delimiter", ",")), "sep")
    options["quote"] = _one(values.get("quote", '"'), "quote")
    options["escape"] = _one(values.get("escape", "\\"), "escape")
    if options["escape"] == options["quote"]:
        options["escape"] = ""
    if options["escape"]:
        options["escape_unquoted"] = False
    encoding = values.get("encoding", values.get("charset", ""))
    return options | ({"encoding": encoding} if encoding else {}) | _named(columns), _types(columns)


def spark_json(settings: Mapping[str, str], columns: Columns) -> Reader:
    """Return the options of a table with Spark's source `json`; types are detected from the values."""
    values = _check_known(settings, "json", {"multiline", "encoding", "charset", "mode"})
    if values.get("multiline", "").lower() == "true" or values.get("mode", "").upper() == "DROPMALFORMED":
        raise ValueError("only JSON with one object in each line is read (multiLine, mode)")
    return {"kind": "json"}, {}


def hive_json(settings: Mapping[str, str], columns: Columns) -> Reader:
    """Return the options of a table with one of the JsonSerDes; types are detected from the values."""
    for key in settings:
        if key.startswith("mapping.") or (key == "ignore.malformed.json" and settings[key].lower() == "true"):
            raise ValueError(f"{key} = {settings[key]!r} changes what is read of JSON, and has no counterpart here")
    return {"kind": "json"}, {}


def open_csv(settings: Mapping[str, str], columns: Columns) -> Reader:
    """Return the options of a table with the OpenCSVSerde: quotes, and backslashes inside them."""
    quote, escape = settings.get("quoteChar", '"'), settings.get("escapeChar", "\\")
    options: dict[str, Any] = {
        **_of_hive(settings, columns),
        "delimiter": _one(settings.get("separatorChar", ","), "separatorChar"),
        "quote": _one(quote, "quoteChar"),
        "escape": "" if escape == quote else _one(escape, "escapeChar"),
    }
    return options | ({"escape_unquoted": False} if options["escape"] else {}), _types(columns)


def hive_text(settings: Mapping[str, str], columns: Columns) -> Reader:
    """Return the options of a table with the LazySimpleSerDe: no quotes; `serialization.null.format` is null."""
    if settings.get("line.delim", "\n") != "\n":
        raise ValueError(f"line.delim = {settings['line.delim']!r}: only lines that end in line feeds are read")
    delimiter = settings.get("field.delim")
    if delimiter is None:
        values = settings.get("serialization.format", "1")
        delimiter = chr(int(values)) if values.isdecimal() and int(values) < 128 else values
    escape = settings.get("escape.delim", "")
    options: dict[str, Any] = {
        **_of_hive(settings, columns),
        "delimiter": _one(delimiter or _CONTROL_A, "field.delim"),
        "quote": "",
        "escape": _one(escape, "escape.delim"),
        "null_values": [settings.get("serialization.null.format", r"\N")],
    }
    return options | ({"escape_unquoted": True} if escape else {}), _types(columns)


def _of_hive(settings: Mapping[str, str], columns: Columns) -> dict[str, Any]:
    """Return the common options of Hive's text readers: empty texts are not null, columns go by position."""
    for key in _REFUSED_OF_HIVE:
        if settings.get(key, "0") not in ("", "0", "false"):
            raise ValueError(f"{key} = {settings[key]!r} has no counterpart here")
    skipped = settings.get("skip.header.line.count", "0")
    if skipped not in ("", "0", "1"):
        raise ValueError(f"skip.header.line.count = {skipped!r}: at most one line is a header")
    encoding = settings.get("serialization.encoding", "")
    return {
        "kind": "csv",
        "header": skipped == "1",
        "empty_text": True,
        **({"skip_blank_lines": False} if len(columns) == 1 else {}),
        **({"encoding": encoding} if encoding else {}),
        **_named(columns),
    }


def _named(columns: Columns) -> dict[str, Any]:
    if not columns:
        raise ValueError("no columns are declared, by which files without names of their own are read")
    for name, type_ in columns:
        if not type_ or _COMPLEX.fullmatch(type_):
            raise ValueError(f"the column {name!r} is of the type {type_ or 'of a struct, list or map'}, not in CSV")
    return {"columns": [name for name, _ in columns]}


def _types(columns: Columns) -> dict[str, str]:
    return {name: type_ for name, type_ in columns if type_.lower() not in _BY_VALUES}


def _check_known(settings: Mapping[str, str], kind: str, allowed: set[str]) -> dict[str, str]:
    values = {key.lower(): value for key, value in settings.items()}
    for key, value in values.items():
        if key not in allowed | _HARMLESS:
            raise ValueError(f"the option {key} = {value!r} of {kind} files has no counterpart here")
    return values


def _one(character: str, key: str) -> str:
    """Return a setting of at most one character; Hive writes some as character codes."""
    if character.startswith("\\u") and len(character) == 6:
        character = chr(int(character[2:], 16))
    character = {r"\t": "\t", r"\u0000": ""}.get(character, character)
    if character == "\0":
        return ""
    if len(character) > 1 or not character.isascii():
        raise ValueError(f"{key} = {character!r}: one ASCII character")
    return character
