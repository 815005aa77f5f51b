"""The text of a new `metastore.yaml`: tables, suggested policies, and comments that explain both.

A policy says what is stored of a column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metastore_assets.messages import is_uri
from metastore_assets.report import text

if TYPE_CHECKING:
    from metastore_assets.config import DatabaseConfig, TableConfig
    from metastore_assets.formats.catalogs.base import ListedTable
    from metastore_assets.statistics.column import ColumnStatistics
    from metastore_assets.values.columns import Column

_NEAR_UNIQUE = 0.95
"""The share of distinct values from which a column looks like an identifier."""
_MIN_VALUES = 20
"""The least number of values for a conclusion from their distinct count."""
_LONG_TEXT = 200
"""The mean number of characters from which a column looks like free text."""
_IDENTIFIER_CLASSES = ("int64", "uint64", "string", "binary", "uuid")
_ALL_COLUMNS = "default"
"""The key under `columns` for all other columns. A column with this name can have no entry."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PERSONAL = frozenset(
    (
        "email",
        "mail",
        "phone",
        "mobile",
        "surname",
        "lastname",
        "firstname",
        "birthday",
        "birthdate",
        "ssn",
        "passport",
        "iban",
        "address",
        "salary",
    )
)
_IDENTIFIERS = frozenset({"id", "uuid", "guid", "key"})
_TEXTS = frozenset(
    ["comment", "comments", "description", "note", "notes", "body", "message", "text", "content", "remark", "remarks"]
)
_NONE: Mapping[str, Any] = {}
_PLAIN_SCALAR = re.compile(r"[A-Za-z./~][\w./~-]*(://[\w./~-]*)?")
_YAML_WORDS = frozenset(
    {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "~", ".nan", ".inf"}
)


@dataclass(frozen=True)
class Suggestion:
    """A suggested policy of one column."""

    column: str
    policy: str
    """The policy as YAML: `{value_filter: on}`."""
    reason: str
    active: bool
    """Whether the policy takes effect. If not, it is written as a comment, because only the user can decide."""


@dataclass(frozen=True)
class TableProposal:
    """A table for the new configuration, with suggested policies for its columns."""

    config: TableConfig
    format: str
    columns: int
    fragments: int
    bytes: int
    partition_columns: tuple[str, ...]
    is_profiled: bool
    """Whether the suggestions are based on the values of the columns. If not, they are based on the schema."""
    suggestions: tuple[Suggestion, ...]

    @property
    def names(self) -> list[str]:
        """A list with the name of the table in the Metastore."""
        return [self.config.name]

    def to_json(self) -> dict[str, Any]:
        """Return the table as a JSON object of `init --json`."""
        return {
            "table": self.config.name,
            "uri": self.config.uri,
            "format": self.format,
            "columns": self.columns,
            "fragments": self.fragments,
            "bytes": self.bytes,
            "partition_columns": list(self.partition_columns),
            "profiled": self.is_profiled,
            "suggestions": [
                {"column": item.column, "policy": item.policy, "reason": item.reason, "active": item.active}
                for item in self.suggestions
            ],
        }


@dataclass(frozen=True)
class DatabaseProposal:
    """A database for the new configuration, with the tables and views that its catalog lists."""

    config: DatabaseConfig
    listed_tables: Sequence[ListedTable]

    def to_json(self) -> dict[str, Any]:
        """Return the database as a JSON object of `init --json`."""
        return {
            "catalog": self.catalog,
            "database": self.config.database,
            "tables": [item.name for item in self.listed_tables if item.format is not None],
            "skipped": [
                {"table": item.name, "reason": item.reason} for item in self.listed_tables if item.format is None
            ],
        }

    @property
    def names(self) -> list[str]:
        """The names of the database's tables in the Metastore."""
        return [self.config.table(item.name).name for item in self.listed_tables if item.format is not None]

    @property
    def catalog(self) -> str:
        """The name of the catalog."""
        return str(getattr(self.config.catalog, "name", self.config.catalog))


def find_database(config: DatabaseConfig) -> DatabaseProposal:
    """Request the tables in a database from its catalog, and return the proposal.

    Raises MetastoreError if the catalog does not have the database, or does not answer.
    """
    from metastore_assets.config import CatalogConfig
    from metastore_assets.formats.catalogs.client import list_tables

    assert isinstance(config.catalog, CatalogConfig)
    return DatabaseProposal(config, list_tables(config.catalog, config.database))


def find_table(config: TableConfig, folder: str) -> TableProposal:
    """Read a table, and return the proposal with suggestions for its columns.

    A small table is profiled in a child process. If the table is large, or has very many columns, the suggestions are
    based on its schema alone. Spark is never started.

    Args:
        config: The configuration of the table, which names at least its location.
        folder: An empty folder for temporary files.

    Raises:
        MetastoreError: There is no table, or it cannot be read.
    """
    from metastore_assets.formats import open_table_format
    from metastore_assets.pipeline.engine import Engine
    from metastore_assets.values.columns import schema_columns

    snapshot = open_table_format(config).snapshot()
    columns = schema_columns(snapshot.schema)
    rows = None
    if Engine(None, "auto").reads_here(snapshot.fragments):
        with suppress(_SparkNeededError):
            rows = _profile(config, folder)
    if rows is None:
        suggestions = _suggest_by_names(columns)
    else:
        repeated_paths = {column.path for column in columns if column.repeated}
        suggestions = _suggest_by_values(rows, snapshot.partition_columns, repeated_paths)
    return TableProposal(
        config,
        snapshot.format,
        len(snapshot.schema),
        len(snapshot.fragments),
        sum(fragment.bytes for fragment in snapshot.fragments),
        snapshot.partition_columns,
        rows is not None,
        tuple(suggestions),
    )


def _profile(config: TableConfig, folder: str) -> Sequence[ColumnStatistics]:
    from metastore_assets.profiling import profile_table

    def start_spark() -> Any:
        raise _SparkNeededError

    return profile_table(config, folder, start_spark).statistics()


class _SparkNeededError(Exception):
    """Raised instead of starting Spark, which a small table needs only if it has very many columns."""


def _suggest_by_values(
    rows: Iterable[ColumnStatistics], partition_columns: Sequence[str], repeated_paths: Set[str]
) -> Iterable[Suggestion]:
    """Yield suggestions for the columns of a profiled table.

    Args:
        rows: The statistics of the columns.
        partition_columns: The names of the partition columns.
        repeated_paths: The paths of the columns inside lists and maps. Predicates cannot name these columns, so
            no value filter (a set of values with which queries skip files) is suggested for them.
    """
    for row in rows:
        if row.type_class is None or row.column in (*partition_columns, _ALL_COLUMNS):
            continue
        distinct_count = row.distinct_count or 0
        if _has_word(row.column, _PERSONAL):
            yield _hide(row.column)
        elif (
            row.type_class in _IDENTIFIER_CLASSES
            and row.column not in repeated_paths
            and row.value_count >= _MIN_VALUES
            and distinct_count >= _NEAR_UNIQUE * row.value_count
            and not _is_long(row)
        ):
            share = "all values are distinct" if distinct_count == row.value_count else "almost all values are distinct"
            yield Suggestion(row.column, "{value_filter: on}", f"{share}: `=` and `in` skip files", active=True)
        elif _is_long(row):
            reason = f"long texts, {row.mean_length:,.0f} characters on average: store no value counts"
            yield Suggestion(row.column, "{frequencies: off, histogram: off}", reason, active=True)


def _suggest_by_names(columns: Iterable[Column]) -> Iterable[Suggestion]:
    """Yield suggestions for columns, based on their names and types.

    In the configuration, they become comments.
    """
    import pyarrow.types as t

    from metastore_assets.values.types import is_text

    for column in columns:
        path, type_ = column.path, column.type
        if path == _ALL_COLUMNS:
            continue
        if _has_word(path, _PERSONAL):
            yield _hide(path)
        elif not column.repeated and (is_text(type_) or t.is_integer(type_)) and _has_word(path, _IDENTIFIERS):
            reason = "if almost all values are distinct: `=` and `in` skip files"
            yield Suggestion(path, "{value_filter: on}", reason, active=False)
        elif is_text(type_) and _has_word(path, _TEXTS):
            yield Suggestion(path, "{frequencies: off, histogram: off}", "if it is free text", active=False)


def _is_long(row: ColumnStatistics) -> bool:
    return row.type_class == "string" and (row.mean_length or 0) >= _LONG_TEXT


def _hide(column: str) -> Suggestion:
    return Suggestion(column, "{values: hidden}", "if it identifies persons: store no values", active=False)


def _has_word(column: str, words: frozenset[str]) -> bool:
    """Return whether the last part of a column's path contains one of the words, in any case.

    For example, `address.customerId` contains `id`. The given words are in lower case.
    """
    last_part = column.rpartition(".")[2]
    return not words.isdisjoint(word.lower() for word in _WORD.findall(last_part))


def format_config(
    root: str,
    proposals: Sequence[TableProposal | DatabaseProposal],
    file: Path,
    catalogs: Mapping[str, Any] = _NONE,
) -> str:
    """Return the text of a new configuration.

    Args:
        root: The folder or URI of the stored state, as the user wrote it.
        proposals: The tables and databases.
        file: The path of the configuration. Tables below its folder get relative paths.
        catalogs: The settings of the catalogs, by name.
    """
    names = [name for item in proposals for name in item.names]
    first_name = names[0] if names else "TABLE"
    steps = {
        "metastore doctor": "check Java, Spark, the root and the tables",
        "metastore refresh --all": "compute the statistics; repeat it after commits",
        f"metastore show {first_name}": "look at them",
        f"metastore check {first_name} --suggest": "print checks to copy into this file",
    }
    lines = [
        "# The tables that the Metastore describes, and where it stores their statistics.",
        "# All keys: docs/reference/configuration.md. Next steps:",
        "#",
        *(f"#   {command:<{max(map(len, steps))}}  {purpose}" for command, purpose in steps.items()),
        "",
        "# The folder of the stored statistics: a path relative to this file, or a URI such as s3://bucket/metastore.",
        f"root: {_scalar(root)}",
        "",
        "# auto: few small files are read without Spark, all others with Spark. spark: always with Spark.",
        "engine: auto",
        "",
        "# The number of versions of each table that stay readable when `metastore expire` runs.",
        "keep_versions: 100",
        "",
    ]
    if catalogs:
        lines += ["# Catalogs that name tables. Write secrets as ${VARIABLE}.", "catalogs:"]
        lines += [f"  {_scalar(name)}: {_quoted_mapping(settings)}" for name, settings in catalogs.items()]
        lines.append("")
    lines.append("tables:")
    for item in proposals:
        entry = _table_lines(item, file.parent) if isinstance(item, TableProposal) else _database_lines(item)
        lines += [*entry, ""]
    return "\n".join(lines[:-1]) + "\n"


def _table_lines(table: TableProposal, folder: Path) -> list[str]:
    """Return the lines of YAML for a proposed table."""
    facts = [
        text.format_count(table.columns, "column"),
        f"{text.format_count(table.fragments, 'file')} ({text.format_size(table.bytes)})",
    ]
    if table.partition_columns:
        facts.append(f"partitioned by {', '.join(map(text.make_printable, table.partition_columns))}")
    lines = [
        f"  # {', '.join(facts)}.",
        f"  - name: {_scalar(table.config.name)}",
        *_source_lines(table, folder),
    ]
    lines += [
        f"    {key}: {_flow(value)}"
        for key, value in (("options", table.config.options), ("schema", table.config.declared))
        if value
    ]
    if not table.suggestions:
        return lines
    basis = (
        "the values"
        if table.is_profiled
        else "the names; the table has too many files or bytes to look at its values here"
    )
    lines += [f"    # What to store of a column. Suggested by {basis}.", "    columns:"]
    # Keys never refer to variables, so `${` in them is not escaped.
    entries = [
        f"{'' if item.active else '# '}{_scalar(item.column, escapes=False)}: {item.policy}"
        for item in table.suggestions
    ]
    width = max(map(len, entries))
    lines += [
        f"      {entry:<{width}}  # {item.reason}" for entry, item in zip(entries, table.suggestions, strict=True)
    ]
    return lines


def _database_lines(database: DatabaseProposal) -> list[str]:
    config = database.config
    count = sum(item.format is not None for item in database.listed_tables)
    return [
        f"  # All tables of a database, also those that are created later. Today {text.format_count(count, 'table')}.",
        "  # `only: [fact_*]` or `except: [tmp_*]` selects some by name; `columns:` sets policies for all.",
        f"  - catalog: {_scalar(database.catalog)}",
        f"    database: {_scalar(config.database)}",
    ]


def _source_lines(table: TableProposal, folder: Path) -> list[str]:
    """Return the YAML lines for the table's location: catalog and name, or URI and format."""
    config = table.config
    if config.catalog is not None:
        name = str(getattr(config.catalog, "name", config.catalog))
        return [f"    catalog: {_scalar(name)}", f"    table: {_scalar(str(config.identifier))}"]
    return [f"    uri: {_scalar(_relative(config.uri, folder))}", f"    format: {_scalar(table.format)}"]


def _relative(uri: str, folder: Path) -> str:
    """Return a local path below a folder as `./path`, and any other location unchanged."""
    if is_uri(uri):
        return uri
    try:
        return f"./{Path(uri).relative_to(folder).as_posix()}"
    except ValueError:
        return uri


def _flow(mapping: Mapping[str, Any]) -> str:
    """Format a mapping as YAML in one line.

    `${` is escaped in values, so that no text refers to a variable.
    """
    return json.dumps(escape_references(mapping), ensure_ascii=False)


def escape_references(value: Any) -> Any:
    """Return a copy of a value with `$${` for each `${`, so that no text in it refers to a variable.

    Texts inside lists and mappings are escaped, too, but not the keys of mappings.
    """
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: escape_references(item) for key, item in value.items()}
    return list(map(escape_references, value)) if isinstance(value, list | tuple) else value


def _quoted_mapping(mapping: Mapping[str, Any]) -> str:
    """Format a mapping as YAML in one line.

    `${` is not escaped, so that it refers to a variable.
    """
    return json.dumps(mapping, ensure_ascii=False)


def _scalar(value: str, *, escapes: bool = True) -> str:
    """Format a text as YAML, in quotes if necessary.

    `${` is escaped unless `escapes` is false.
    """
    is_plain = _PLAIN_SCALAR.fullmatch(value) and value.lower() not in _YAML_WORDS
    return value if is_plain else _quoted(escape_references(value) if escapes else value)


def _quoted(value: object) -> str:
    """Format a value as one line of YAML, with all texts in double quotes."""
    import yaml

    yaml_text = yaml.safe_dump(value, default_style='"', default_flow_style=True, width=1 << 31, allow_unicode=True)
    return yaml_text.rstrip("\n")
