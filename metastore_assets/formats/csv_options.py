"""Reader options of CSV files, as a table's configuration says them."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metastore_assets.errors import ConfigError

OPTIONS = ("header", "delimiter", "quote", "escape", "encoding", "null_values")


@dataclass(frozen=True)
class CsvOptions:
    """How the CSV files of a table are written."""

    header: bool | None = None
    """Whether the first row holds the names; else they are `f0`, `f1`, …. None: each file tells."""
    delimiter: str = ","
    quote: str | None = '"'
    """Encloses values; doubled inside of them it stands for itself."""
    escape: str | None = None
    """Takes its meaning from the character behind it."""
    encoding: str = "utf8"
    null_values: tuple[str, ...] | None = None
    """Texts that mean null. When not given: the empty field, in every column but text, where it is the empty text."""
    has_delimiter: bool = False
    """Whether the delimiter is the one that was asked for."""

    @classmethod
    def of(cls, table: str, options: Mapping[str, Any], suffix: str) -> CsvOptions:
        """Options from a table's configuration. Raises ConfigError naming the key, the value and what is allowed."""
        header = options.get("header")
        if header is not None and not isinstance(header, bool):
            raise ConfigError(f"table {table!r}: options.header = {header!r}: true or false")
        delimiter = options.get("delimiter", "\t" if suffix == ".tsv" else ",")
        delimiter = "\t" if delimiter == r"\t" else delimiter
        quote = options.get("quote", '"') or None
        escape = options.get("escape") or None
        for key, value in (("delimiter", delimiter), ("quote", quote), ("escape", escape)):
            if value is not None and (not isinstance(value, str) or len(value) != 1 or not value.isascii()):
                raise ConfigError(f"table {table!r}: options.{key} = {value!r}: one ASCII character")
        null_values = options.get("null_values")
        if null_values is not None and not (
            isinstance(null_values, list | tuple) and all(isinstance(value, str) for value in null_values)
        ):
            raise ConfigError(f"table {table!r}: options.null_values = {null_values!r}: a list of texts")
        encoding = options.get("encoding", "utf8")
        try:
            codecs.lookup(encoding)
        except (LookupError, TypeError):
            raise ConfigError(f"table {table!r}: options.encoding = {encoding!r}: the name of an encoding") from None
        nulls = None if null_values is None else tuple(null_values)
        return cls(header, delimiter, quote, escape, encoding, nulls, "delimiter" in options)
