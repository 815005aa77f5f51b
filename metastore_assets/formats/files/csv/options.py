"""The options of CSV files in a table's configuration."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metastore_assets.errors import ConfigError

OPTIONS = (
    "header",
    "delimiter",
    "quote",
    "escape",
    "escape_unquoted",
    "encoding",
    "null_values",
    "skip_initial_space",
    "skip_blank_lines",
    "empty_text",
    "columns",
)


@dataclass(frozen=True)
class CsvOptions:
    """The options of a table's CSV files: their syntax, and which values are null."""

    header: bool | None = None
    """Whether the first row has the names of the columns. None detects it per file. Without names, columns are `f0`,
    `f1`, …."""
    delimiter: str = ","
    quote: str | None = '"'
    """The character around values that contain delimiters or line breaks. Doubled inside of a value, it stands for
    itself."""
    escape: str | None = None
    """The character before a quote, delimiter, line break or escape that is part of a value."""
    escape_unquoted: bool | None = None
    """Whether escapes count in values without quotes. With None, a file is refused if that matters."""
    encoding: str = "utf8"
    null_values: tuple[str, ...] | None = None
    """Texts that mean null. With None, an empty value is null, except that in quotes it is the empty text in text
    columns."""
    skip_initial_space: bool | None = None
    """Whether blanks before values, and after closing quotes, are ignored. With None they are not, and blanks before a
    quote are refused."""
    skip_blank_lines: bool | None = None
    """Whether blank lines in a file of one column are ignored; if not, they are nulls. With None they are refused."""
    empty_text: bool = False
    """Whether an empty value is the empty text in text columns and null in others. If not, `null_values` decides."""
    columns: tuple[str, ...] | None = None
    """Names of the columns in file order. They replace the names in the first row."""
    has_delimiter: bool = False
    """Whether the configuration sets the delimiter."""
    has_escape: bool = False
    """Whether the configuration sets the escape, also to an empty text."""

    @property
    def empty_is_null(self) -> bool:
        """Whether an empty value means null in columns that are not text."""
        return self.null_values is None or self.empty_text

    @classmethod
    def of(cls, table: str, options: Mapping[str, Any], suffix: str) -> CsvOptions:
        """Parse the options in a table's configuration.

        Args:
            table: name of the table, for messages.
            options: the options by name, including those of other formats. An escape that equals the quote is ignored.
            suffix: suffix of the file. The default delimiter of `.tsv` is a tab.

        Raises:
            ConfigError: an option is invalid.
        """
        for key in ("header", "escape_unquoted", "skip_initial_space", "skip_blank_lines", "empty_text"):
            if not isinstance(options.get(key), bool | None):
                raise ConfigError(f"table {table!r}: options.{key} = {options[key]!r}: true or false")
        delimiter = options.get("delimiter", "\t" if suffix == ".tsv" else ",")
        delimiter = "\t" if delimiter == r"\t" else delimiter
        quote = options.get("quote", '"') or None
        escape = options.get("escape") or None
        escape = None if escape == quote else escape  # Some writers call it an escape that quotes are doubled.
        used_characters: set[str] = set()
        for key, value in (("delimiter", delimiter), ("quote", quote), ("escape", escape)):
            if value is None and key != "delimiter":
                continue
            if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
                raise ConfigError(f"table {table!r}: options.{key} = {value!r}: one ASCII character, no line break")
            if value in used_characters:
                raise ConfigError(f"table {table!r}: options.{key} = {value!r}: another option is this character, too")
            used_characters.add(value)
        null_values = options.get("null_values")
        if null_values is not None and not (
            isinstance(null_values, list | tuple) and all(isinstance(value, str) for value in null_values)
        ):
            raise ConfigError(f"table {table!r}: options.null_values = {null_values!r}: a list of texts")
        encoding = options.get("encoding", "utf8")
        try:
            codecs.getincrementaldecoder(encoding)
            "a".encode(encoding)  # refuses codecs of bytes, such as `hex`
        except (LookupError, TypeError, ValueError):
            raise ConfigError(f"table {table!r}: options.encoding = {encoding!r}: the name of an encoding") from None
        nulls = None if null_values is None else tuple(null_values)
        columns = options.get("columns")
        if columns is not None and not (
            isinstance(columns, list | tuple) and columns and all(isinstance(name, str) for name in columns)
        ):
            raise ConfigError(f"table {table!r}: options.columns = {columns!r}: a list of names")
        if columns is not None and options.get("header") is None:
            raise ConfigError(f"table {table!r}: options.columns takes options.header, true or false, too")
        return cls(
            options.get("header"),
            delimiter,
            quote,
            escape,
            options.get("escape_unquoted"),
            encoding,
            nulls,
            options.get("skip_initial_space"),
            options.get("skip_blank_lines"),
            bool(options.get("empty_text")),
            None if columns is None else tuple(columns),
            "delimiter" in options,
            "escape" in options,
        )
