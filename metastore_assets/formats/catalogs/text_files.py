"""Translation of text file settings in Glue and Hive metastores to options of the format `files`.

Each function takes the settings of a table in the catalog, and its columns except partition columns. It returns options
of the format `files`, and Hive types by column. A setting that is known to change values, and has no counterpart in
`files`, is refused. Unknown settings of Spark's data sources are refused, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Columns = Sequence[tuple[str, str]]
"""Name and Hive type of each column."""
ReaderSettings = tuple[dict[str, Any], dict[str, str]]
"""Options of the format `files`, and Hive types by column."""

_DETECTED_TYPES = ("timestamp", "timestamp_ltz", "timestamp with local time zone")
"""Types whose values depend on the reader's time zone. The type of such a column is detected from its values instead.
"""
_COMPLEX = re.compile(r"(array|map|struct|uniontype)<.*|binary|void|interval.*", re.IGNORECASE | re.DOTALL)
_CONTROL_A = "\x01"
_ESCAPED = re.compile(r"\\u[0-9A-Fa-f]{4}")
_IGNORED_OPTIONS = {
    "path",
    "serialization.format",
    "compression",
    "codec",
    "mergeschema",
    "samplingratio",
    "inferschema",
}
_CSV_OPTIONS = {"header", "sep", "delimiter", "quote", "escape", "encoding", "charset", "enforceschema", "mode"}
_UNSUPPORTED_HIVE_KEYS = (
    "skip.footer.line.count",
    "serialization.last.column.takes.rest",
    "timestamp.formats",
    "textinputformat.record.delimiter",
)


def spark_csv(settings: Mapping[str, str], columns: Columns) -> ReaderSettings:
    """Return the reader settings for files of Spark's data source `csv`.

    Raises ValueError for an unsupported setting.
    """
    values = _check_options(settings, "csv", _CSV_OPTIONS)
    if values.get("mode", "").upper() == "DROPMALFORMED":
        raise ValueError("mode = 'DROPMALFORMED' leaves out rows, which has no counterpart here")
    # Spark reads an empty text as null, also in quotes.
    options: dict[str, Any] = {"kind": "csv", "null_values": [""]}
    options["header"] = values.get("header", "false").lower() == "true"
    options["delimiter"] = _delimiter(values.get("sep", values.get("delimiter", ",")), "sep")
    options["quote"] = _single_character(values.get("quote", '"'), "quote")
    options["escape"] = _single_character(values.get("escape", "\\"), "escape")
    if options["escape"] == options["quote"]:
        options["escape"] = ""
    if options["escape"]:
        options["escape_unquoted"] = False
    encoding = values.get("encoding", values.get("charset", ""))
    return options | ({"encoding": encoding} if encoding else {}) | _column_options(columns), _column_types(columns)


def spark_json(settings: Mapping[str, str], columns: Columns) -> ReaderSettings:
    """Return the reader settings for files of Spark's data source `json`.

    The types of columns are detected from their values, so `columns` is not used. Raises ValueError for an unsupported
    setting.
    """
    values = _check_options(settings, "json", {"multiline", "encoding", "charset", "mode"})
    if values.get("multiline", "").lower() == "true" or values.get("mode", "").upper() == "DROPMALFORMED":
        raise ValueError("only JSON with one object in each line is read: change multiLine or mode")
    return {"kind": "json"}, {}


def hive_json(settings: Mapping[str, str], columns: Columns) -> ReaderSettings:
    """Return the reader settings for files of Hive's JSON serdes.

    The types of columns are detected from their values, so `columns` is not used. Raises ValueError for an unsupported
    setting.
    """
    for key in settings:
        if key.startswith("mapping.") or (key == "ignore.malformed.json" and settings[key].lower() == "true"):
            raise ValueError(f"{key} = {settings[key]!r} changes how JSON is read, and has no counterpart here")
    for key in ("skip.header.line.count", *_UNSUPPORTED_HIVE_KEYS):
        if settings.get(key, "0") not in ("", "0", "false"):
            raise ValueError(f"{key} = {settings[key]!r} has no counterpart here")
    return {"kind": "json"}, {}


def open_csv(settings: Mapping[str, str], columns: Columns) -> ReaderSettings:
    """Return the reader settings for files of Hive's OpenCSVSerde.

    Values may be quoted, with escapes.

    Raises ValueError for an unsupported setting.
    """
    quote, escape = settings.get("quoteChar", '"'), settings.get("escapeChar", "\\")
    options: dict[str, Any] = {
        **_hive_options(settings, columns),
        "delimiter": _delimiter(settings.get("separatorChar", ","), "separatorChar"),
        "quote": _single_character(quote, "quoteChar"),
        "escape": "" if escape == quote else _single_character(escape, "escapeChar"),
    }
    return options | ({"escape_unquoted": False} if options["escape"] else {}), _column_types(columns)


def hive_text(settings: Mapping[str, str], columns: Columns) -> ReaderSettings:
    """Return the reader settings for files of Hive's LazySimpleSerDe, whose values are never quoted.

    Raises ValueError for an unsupported setting.
    """
    if settings.get("line.delim", "\n") != "\n":
        raise ValueError(f"line.delim = {settings['line.delim']!r}: only lines that end in line feeds are read")
    delimiter = _hive_character(settings.get("field.delim", settings.get("serialization.format", "")), _CONTROL_A)
    escape = _hive_character(settings["escape.delim"], "\\") if "escape.delim" in settings else ""
    options: dict[str, Any] = {
        **_hive_options(settings, columns),
        "delimiter": _delimiter(delimiter, "field.delim"),
        "quote": "",
        "escape": _single_character(escape, "escape.delim"),
        "null_values": [settings.get("serialization.null.format", r"\N")],
    }
    return options | ({"escape_unquoted": True} if escape else {}), _column_types(columns)


def _hive_options(settings: Mapping[str, str], columns: Columns) -> dict[str, Any]:
    """Return the options that apply to all text files of Hive.

    With these options, empty texts are not null, and columns are matched by position. Raises ValueError for an
    unsupported setting.
    """
    for key in _UNSUPPORTED_HIVE_KEYS:
        if settings.get(key, "0") not in ("", "0", "false"):
            raise ValueError(f"{key} = {settings[key]!r} has no counterpart here")
    skipped_lines = settings.get("skip.header.line.count", "0")
    if skipped_lines not in ("", "0", "1"):
        raise ValueError(f"skip.header.line.count = {skipped_lines!r}: at most one line is a header")
    encoding = settings.get("serialization.encoding", "")
    return {
        "kind": "csv",
        "header": skipped_lines == "1",
        "empty_text": True,
        **({"skip_blank_lines": False} if len(columns) == 1 else {}),
        **({"encoding": encoding} if encoding else {}),
        **_column_options(columns),
    }


def _column_options(columns: Columns) -> dict[str, Any]:
    """Return the option that names the columns.

    Raises ValueError if there are no columns, or if one has a type that CSV cannot store: nested, binary or an
    interval.
    """
    if not columns:
        raise ValueError("no columns are declared, and the files have no column names")
    for name, type_ in columns:
        if not type_ or _COMPLEX.fullmatch(type_):
            raise ValueError(f"the column {name!r} is of the type {type_ or 'struct, list or map'}, not in CSV")
    return {"columns": [name for name, _ in columns]}


def _column_types(columns: Columns) -> dict[str, str]:
    return {name: type_ for name, type_ in columns if type_.lower() not in _DETECTED_TYPES}


def _check_options(settings: Mapping[str, str], kind: str, allowed_names: set[str]) -> dict[str, str]:
    """Return the settings, which are options of a Spark data source, with their names in lower case.

    Raises ValueError for a name that is neither in `allowed_names` nor in _IGNORED_OPTIONS.
    """
    values = {key.lower(): value for key, value in settings.items()}
    for key, value in values.items():
        if key not in allowed_names | _IGNORED_OPTIONS:
            raise ValueError(f"the option {key} = {value!r} of {kind} files has no counterpart here")
    return values


def _hive_character(text: str, default: str) -> str:
    """Return the character that a setting of LazySimpleSerDe names.

    A number is the code of a character: `9` is a tab. An empty text is the default.
    """
    return chr(int(text)) if text.isdecimal() and int(text) < 128 else text or default


def _delimiter(character: str, key: str) -> str:
    """Return the delimiter that a setting names; see `_single_character`.

    Raises ValueError if it names none.
    """
    delimiter = _single_character(character, key)
    if not delimiter:
        raise ValueError(f"{key} = {character!r} is no delimiter")
    return delimiter


def _single_character(character: str, key: str) -> str:
    r"""Return the character that a setting stands for.

    A setting is one ASCII character, its escape such as `\u0001`, or `\t` for a tab. The result is empty if the setting
    is empty or the null character. Raises ValueError for any other text.

    Args:
        character: The text of the setting.
        key: The name of the setting, for the message.
    """
    if _ESCAPED.fullmatch(character):
        character = chr(int(character[2:], 16))
    character = {r"\t": "\t", r"\u0000": ""}.get(character, character)
    if character == "\0":
        return ""
    if len(character) > 1 or not character.isascii():
        raise ValueError(f"{key} = {character!r}: give one ASCII character")
    return character
