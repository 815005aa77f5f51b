"""Detection of headers: whether the first row of a CSV file contains the names of columns, or values.

Ambiguous files are refused, and the user sets the option `header`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.files.csv.types import ALL, fitting, preferred
from metastore_assets.startup import pc

_NULLS = frozenset(["", "na", "n/a", "#n/a", "nan", "null", "none", "nil", r"\n", "-", "--", "?", "."])
_PLACEHOLDERS = frozenset(["n.a.", "unknown", "missing", "undefined", "tbd", "tba", "not available", "not applicable"])
"""Texts in place of a missing value. They are no column names."""
_FLAGS = frozenset(["t", "f", "y", "n", "yes", "no", "on", "off", "true", "false"])
_YEAR = re.compile(r"(18|19|20)\d\d")
_MAX_NAME = 18
"""Maximum number of digits of a number that may be a name. Python converts no text of thousands of digits."""
_DIGITS = re.compile(r"[+-]?\d+")
_TEXT_KINDS = {
    "numbers": r"^\P{L}*\p{Nd}\P{L}*$",
    "e-mail addresses": r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    "URLs": r"^[A-Za-z][A-Za-z0-9+.-]*://",
    "UUIDs": r"^[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}$",
}
"""Patterns of texts that are no column names. `numbers` are numbers stored as text: `1/31/2024`, `$1,234.50`, `01234`.
"""
_RUN_OF_DIGITS = r"\p{Nd}+"
_NAME_BEGINNING = re.compile(r"[^\W\d]|[#%$€£°(\"'*][\W_]*[^\W\d]")
_NUMBERED = re.compile(r"(\D*[^\W\d]\D*?)(0|[1-9]\d{0,17})")
_CODE = re.compile(r"[^a-z]*|\D*[\s:#-]\d+")
"""Matches texts with digits that may be values or names: `A5`, `EUR 5`, `user-6`."""
_NAME, _MAYBE_NAME, _VALUE, _MAYBE_VALUE = "name", "maybe name", "value", "maybe value"
_NEITHER, _NO_EVIDENCE = "neither", "silent"
"""What the first cell of a column seems to be, compared with the values below it. A cell of the class `_NEITHER` is
unlike a name and unlike these values. A cell without evidence does not matter."""
_SAMPLE = 1024
UNKNOWN_HEADER = (
    "its first row may hold the names of the columns or values; set options.header: `options: {header: true}` if it "
    "holds names, `options: {header: false}` if it holds values"
)


@dataclass(frozen=True)
class FirstRow:
    """The first row of a file that may be a header. It is kept only if the options do not say whether it is one."""

    cells: tuple[str, ...]
    has_types: bool
    """Whether any column has a type other than text, judged by the values below the first row."""


class HeaderDetector:
    """A detector that decides whether the first row of a file is a header. It compares the row with the other rows."""

    def __init__(self, batch: pa.RecordBatch, other_types: Sequence[frozenset[pa.DataType]], other_rows: int) -> None:
        """Create a detector.

        Args:
            batch: the first block of the file as texts. Its first row may be a header.
            other_types: for each column, the types that the values of all other rows of the file fit.
            other_rows: number of other rows in the file.
        """
        columns = [pc.fill_null(column, "") for column in batch.columns]
        self._raw_cells = tuple(column[0].as_py() for column in columns)
        self._cells = tuple(map(str.strip, self._raw_cells))
        self._other_types = other_types
        self._other_values = [column.slice(1) for column in columns]
        self._other_rows = other_rows

    @property
    def first_row(self) -> FirstRow:
        """The first row in the form that the summary of the file stores."""
        return FirstRow(self._raw_cells, any(map(_is_typed, self._other_types)))

    def is_header(self) -> bool | None:
        """Return True if the first row has names, False if it has values, None if that is ambiguous.

        Each cell is compared with the values below it. Cells unlike numbers, dates or e-mail addresses below them are
        names, and cells like the values below them are values. If all columns contain other texts, there are two rules:
        names that pandas or databases generate, such as `c1` and `c2`, are names, and cells that are frequent in their
        columns are values.
        """
        classes = [self._classify_cell(column) for column in range(len(self._cells))]
        evidence = set(classes) - {_NO_EVIDENCE}
        if evidence & {_NAME, _MAYBE_NAME} and not evidence & {_VALUE, _MAYBE_VALUE, _NEITHER}:
            columns = range(len(self._cells))
            maybe_names = [column for column in columns if classes[column] == _MAYBE_NAME]
            is_sure = _NAME in evidence or self._are_numbered(maybe_names) or self._are_numbered(columns)
            name_count = sum(cell_class in (_NAME, _MAYBE_NAME) for cell_class in classes)
            return True if is_sure and sum(map(self._occurs_again, columns)) < name_count else None
        if _VALUE in evidence and evidence <= {_VALUE, _MAYBE_VALUE}:
            return None if self._may_have_numeric_names() or self._are_numbered(range(len(self._cells))) else False
        if evidence:
            return None
        if self._has_pandas_index() or self._has_default_names():
            return True
        return False if self._has_frequent_values() else None

    def _classify_cell(self, column: int) -> str:
        """Return the class of a column's first cell, by the values below it: `_NAME`, `_VALUE` or another class."""
        cell, types = self._cells[column], self._other_types[column]
        if cell.lower() in _NULLS:
            return _NO_EVIDENCE
        if types == ALL:
            return self._classify_lone_cell(cell)
        values = self._values(column)
        if not _is_typed(types):
            # A column of numbers and `NA` has the type text, but its values are numbers.
            types = fitting(values, ALL)
        if _is_typed(types):
            return _classify_above_type(cell, preferred(types))
        kind = _text_kind(values)
        if kind is not None:
            return _VALUE if _is_all(pa.array([cell]), kind) else _classify_text(cell)
        if _is_number(cell):
            # A number above texts may be a name: pandas names columns 0, 1, 2.
            return _MAYBE_VALUE if _is_any(values, _TEXT_KINDS["numbers"]) else _NO_EVIDENCE
        shape = _common_shape(values)
        return _VALUE if shape is not None and _shape_of(cell) == shape else _NO_EVIDENCE

    def _classify_lone_cell(self, cell: str) -> str:
        """Return the constant, such as `_VALUE`, for the first cell of a column without other values."""
        if not self._other_rows and all(map(_is_number_or_null, self._cells)):
            return _VALUE
        return _MAYBE_VALUE if _is_number(cell) else _NO_EVIDENCE

    def _values(self, column: int) -> pa.StringArray:
        """Return the values of a column in the first block, without the first row and without nulls."""
        texts = self._other_values[column]
        is_null = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), value_set=pa.array(sorted(_NULLS)))
        return texts.filter(pc.invert(is_null))

    def _occurs_again(self, column: int) -> bool:
        """Return whether the first cell of a column occurs again below it."""
        cell = self._raw_cells[column]
        return cell != "" and bool(pc.any(pc.equal(self._other_values[column], cell)).as_py())

    def _may_have_numeric_names(self) -> bool:
        """Return whether the first row may be a header although its cells look like values.

        This is so in four cases:

        - The first cell is empty, and the numbers 0, 1, 2, … of a pandas index are below it.
        - The cells are 0, 1, 2, …, as pandas names columns; the first cell may be empty.
        - Two adjacent cells are consecutive years, as in `2020,2021`.
        - The first cell is a text, and the only numbers are years above other values, as in `city,2020`, or adjacent
          numbers with equal steps, as in `city,10,20,30`.
        """
        cells = self._cells
        if len(cells) < 2:
            return False
        # pandas writes 0, 1, 2 for columns without names, and an empty name for an index.
        if _counts_from_zero(cells if cells[0] else cells[1:]) or (not self._raw_cells[0] and self._counts_below(0)):
            return True
        years = [column for column, cell in enumerate(cells) if _YEAR.fullmatch(cell)]
        if any(b - a == 1 and abs(int(cells[b]) - int(cells[a])) == 1 for a, b in pairwise(years)):
            return True
        if _is_number_or_null(cells[0]):
            return False
        # After a text: years as the only numbers, above columns that do not all have years.
        columns = [column for column, cell in enumerate(cells) if _DIGITS.fullmatch(cell)]
        if (
            years
            and years == columns
            and not all(_is_all(self._values(column), f"^({_YEAR.pattern})$") for column in years)
        ):
            return True
        # Or numbers in adjacent columns, with equal steps.
        if not columns or columns[-1] - columns[0] >= len(columns):
            return False
        if any(len(cells[column]) > _MAX_NAME for column in columns):
            return False
        steps = {int(cells[b]) - int(cells[a]) for a, b in pairwise(columns)}
        return len(steps) == 1 and 0 not in steps and (len(columns) > 2 or bool(steps & {1, -1}))

    def _has_pandas_index(self) -> bool:
        """Return whether the first row looks like a header that pandas wrote with an index column.

        The first cell of such a header is empty, with the numbers 0, 1, 2, … below it. The other cells are names.
        """
        names = self._cells[1:]
        if self._raw_cells[0] or not names or not self._counts_below(0):
            return False
        if not all(names) or any(self._occurs_again(column) for column in range(1, len(self._cells))):
            return False
        return not any(map(_is_number, names)) or _counts_from_zero(names)

    def _counts_below(self, column: int) -> bool:
        """Return whether the values of a column below the first row are integers that begin with 0, 1, 2, …."""
        if pa.int64() not in self._other_types[column] or not len(self._other_values[column]):
            return False
        return _counts_from_zero(self._other_values[column].slice(0, _SAMPLE).to_pylist())

    def _has_default_names(self) -> bool:
        """Return whether the first row has numbered names (`c1`, `c2`), and the values below have another shape."""
        columns = range(len(self._cells))
        if not self._are_numbered(columns):
            return False
        shapes = [_common_shape(self._values(column)) for column in columns]
        return None not in shapes and _shape_of(self._cells[0]) not in shapes

    def _are_numbered(self, columns: Sequence[int]) -> bool:
        """Return whether the first cells of these columns are one word with consecutive numbers: `c1`, `c2`.

        There must be at least two cells, and the numbers must begin with 0 or 1.
        """
        matches = [_NUMBERED.fullmatch(self._cells[column]) for column in columns]
        parts = [(match[1], int(match[2])) for match in matches if match]
        if len(parts) < max(2, len(matches)) or len({word for word, _ in parts}) > 1:
            return False
        numbers = [number for _, number in parts]
        return numbers[0] in (0, 1) and all(b - a == 1 for a, b in pairwise(numbers))

    def _has_frequent_values(self) -> bool:
        """Return whether the cells of the first row are frequent values of their columns, and the row occurs only once.

        Cells that mean null are ignored. There must be at least two other cells.
        """
        columns = [column for column, cell in enumerate(self._cells) if cell.lower() not in _NULLS]
        if len(columns) < 2 or not len(self._other_values[0]):
            return False
        is_same = [pc.equal(self._other_values[column], self._raw_cells[column]) for column in range(len(self._cells))]
        is_copy = is_same[0]
        for is_same_cell in is_same[1:]:
            is_copy = pc.and_(is_copy, is_same_cell)
        if pc.any(is_copy).as_py():
            # A row that occurs again may be a header, which concatenated files repeat.
            return False
        for column in columns:
            texts = self._other_values[column]
            distinct = pc.count_distinct(texts).as_py()
            count = pc.sum(is_same[column]).as_py()
            if 2 * distinct > len(texts) or 2 * count * distinct < len(texts):
                return False
        return True


def detect_headers(table: str, files: Sequence[tuple[str, bool | None, FirstRow | None]]) -> list[bool | None]:
    """Decide for each file of a table whether the file has a header.

    An ambiguous file is taken to have a header if every cell of its first row is a name in the headers of other files.

    Args:
        table: URI of the table, for messages.
        files: path, `CsvSummary.has_header` and first row of each file.

    Returns:
        For each file, whether it has a header; None for a file whose first row is None.

    Raises:
        TableFormatError: a file is still ambiguous. Or some files have a header and others have none. Or the header of
            a file that has only text columns shares no name with the headers of other files.
    """
    certain_headers = {first.cells for _, has_header, first in files if first and has_header}
    names = {name for cells in certain_headers for name in cells}
    headers: list[bool | None] = []
    for path, has_header, first in files:
        if has_header is None and first is not None:
            if not names.issuperset(first.cells):
                raise TableFormatError(f"{table}: {path}: {UNKNOWN_HEADER}")
            has_header = True
        headers.append(has_header)
    with_header, without = (
        [path for (path, _, _), header in zip(files, headers, strict=True) if header is has_header]
        for has_header in (True, False)
    )
    if with_header and without:
        raise TableFormatError(
            f"{table}: {with_header[0]} seems to have a header and {without[0]} seems to have none; "
            "set options.header: `options: {header: true}` or `options: {header: false}`"
        )
    _check_shared_names(table, files, certain_headers)
    return headers


def _check_shared_names(
    table: str, files: Sequence[tuple[str, bool | None, FirstRow | None]], headers: set[tuple[str, ...]]
) -> None:
    """Raise TableFormatError if a header above text columns shares no name with the headers of other files.

    Such a row may consist of values.
    """
    if len(headers) < 2:
        return
    uses = Counter(name for cells in headers for name in set(cells))
    for path, _, first in files:
        if first is None or first.has_types:
            continue
        if first.cells in headers and all(uses[name] == 1 for name in first.cells):
            raise TableFormatError(f"{table}: {path}: {UNKNOWN_HEADER}")


def _classify_above_type(cell: str, below: pa.DataType) -> str:
    """Classify the first cell of a column whose other values are not text, as `_NAME`, `_VALUE` or another class."""
    types = _types_of(cell)
    if _is_typed(types):
        return _VALUE if _are_alike(preferred(types), below) else _NEITHER
    if pa.types.is_boolean(below) and cell.lower() in _FLAGS:
        return _NEITHER
    if _DIGITS.fullmatch(cell) and (pa.types.is_integer(below) or pa.types.is_floating(below)):
        return _VALUE  # A number with leading zeros has the type text.
    return _classify_text(cell)


def _classify_text(cell: str) -> str:
    """Classify a text in the first row that is of another kind than the values below it.

    Returns:
        `_NAME`, `_MAYBE_NAME`, or `_NEITHER` for a text that is no name, such as `12 kg` or `<5`.
    """
    if not _NAME_BEGINNING.match(cell) or cell.lower() in _PLACEHOLDERS:
        return _NEITHER
    return _MAYBE_NAME if any(map(str.isdigit, cell)) and _CODE.fullmatch(cell) else _NAME


def _text_kind(values: pa.StringArray) -> str | None:
    """Return the pattern in _TEXT_KINDS that all values match; None without such a pattern."""
    return next((pattern for pattern in _TEXT_KINDS.values() if len(values) and _is_all(values, pattern)), None)


def _common_shape(values: pa.StringArray) -> str | None:
    """Return the common shape of at least two values, such as `user-#`; None without one.

    A shape is a text with `#` in place of each number. Values without numbers have no shape.
    """
    if len(values) < 2:
        return None
    shape = _shape_of(values[0].as_py())
    if "#" not in shape:
        return None
    for part in (values.slice(0, _SAMPLE), values.slice(_SAMPLE)):
        if len(part) and not pc.all(pc.equal(_shapes(part), shape)).as_py():
            return None
    return shape


def _shapes(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(texts, _RUN_OF_DIGITS, "#")


def _shape_of(text: str) -> str:
    shape: str = _shapes(pa.array([text]))[0].as_py()
    return shape


def _is_all(texts: pa.StringArray, pattern: str) -> bool:
    return all(
        bool(pc.all(pc.match_substring_regex(part, pattern), min_count=0).as_py())
        for part in (texts.slice(0, _SAMPLE), texts.slice(_SAMPLE))
    )


def _is_any(texts: pa.StringArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _counts_from_zero(cells: Sequence[str]) -> bool:
    """Return whether the cells are 0, 1, 2, …."""
    return all(cell == str(number) for number, cell in enumerate(cells))


def _is_number(cell: str) -> bool:
    """Return whether a text is a number, a date or a time, or has digits and no letters."""
    return any(map(str.isdigit, cell)) and (not any(map(str.isalpha, cell)) or _is_typed(_types_of(cell)))


def _is_number_or_null(cell: str) -> bool:
    return cell.lower() in _NULLS or _is_typed(_types_of(cell)) or _is_number(cell)


def _are_alike(first: pa.DataType, second: pa.DataType) -> bool:
    """Return whether one column may contain values of both types, such as fractions and integers."""
    kinds = (pa.types.is_boolean, pa.types.is_time)
    if any(kind(first) or kind(second) for kind in kinds):
        return first == second
    return pa.types.is_temporal(first) == pa.types.is_temporal(second)


def _types_of(cell: str) -> frozenset[pa.DataType]:
    return fitting(pa.array([cell or None], pa.string()), ALL)


def _is_typed(types: frozenset[pa.DataType]) -> bool:
    return types != ALL and preferred(types) != pa.string()
