"""Templates give partition values from folder names, and filters apply before folders are listed.

A fragment is one data file of a table.
"""

from __future__ import annotations

import os
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, SnapshotNotFoundError, TableFormatError, TableNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats import MetadataCache, OpenContext, TableFormat, decode_partition_key, open_table_format
from metastore_assets.formats.catalogs.base import PartitionFolder, RegisteredFolders
from metastore_assets.formats.files.table import FilesFormat
from tests.formats.oracle import read_columns


def _table(folder: Path, template: str | None = None, **config: Any) -> TableFormat:
    options = {} if template is None else {"template": template}
    return open_table_format(TableConfig(name="t", uri=str(folder), options=options, **config))


def _write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_folders_by_date(tmp_path: Path) -> None:
    """A template gives each level of folders a partition column, and partition keys have the values.

    A placeholder with `:int` gives integers, and a placeholder without a type gives texts.
    """
    for number, day in enumerate(("2024/01/31", "2024/12/01", "2023/01/31")):
        _write(tmp_path / day / "x.parquet", a=[number])
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / "_tmp").mkdir()
    table = _table(tmp_path, "{year:int}/{month}/{day}")
    snapshot = table.snapshot()
    assert table.snapshot_id() == snapshot.id
    assert snapshot.partition_columns == ("year", "month", "day")
    assert snapshot.schema == pa.schema(
        [("a", pa.int64()), ("year", pa.int64()), ("month", pa.string()), ("day", pa.string())]
    )
    assert sorted(zip(*read_columns(snapshot).values(), strict=True)) == [
        (0, 2024, "01", "31"),
        (1, 2024, "12", "01"),
        (2, 2023, "01", "31"),
    ]
    keys = ["year=2023/month=01/day=31", "year=2024/month=01/day=31", "year=2024/month=12/day=01"]
    assert [fragment.partition_key for fragment in snapshot.fragments] == keys
    bounds = table.bounds(snapshot, "year")
    assert bounds["minimum"].to_pylist() == bounds["maximum"].to_pylist() == [2023, 2024, 2024]


@pytest.mark.parametrize(
    ("template", "path", "values"),
    [
        ("data/{country}/{year:int}", "data/fr/-05", {"country": "fr", "year": -5}),
        ("dt={day:date}", "dt=2024-01-31", {"day": date(2024, 1, 31)}),
        ("{year:int}-{month:int}/h{hour}", "2024-07/h09", {"year": 2024, "month": 7, "hour": "09"}),
        ("/{a.b}/", "x=y%20é", {"a.b": "x=y%20é"}),
        ("v(1)/{x}", "v(1)/.5", None),
        ("x={x:text}", "x=__HIVE_DEFAULT_PARTITION__", {"x": None}),
    ],
)
def test_templates(tmp_path: Path, template: str, path: str, values: dict[str, Any] | None) -> None:
    """Placeholders of a template get parts of folder names as values, in the declared types.

    A hidden folder does not match a placeholder.
    """
    _write(tmp_path / path / "x.parquet", a=[1])
    if values is None:
        with pytest.raises(TableNotFoundError):
            _table(tmp_path, template).snapshot()
        return
    snapshot = _table(tmp_path, template).snapshot()
    assert read_columns(snapshot) == {"a": [1]} | {name: [value] for name, value in values.items()}
    key = snapshot.fragments[0].partition_key
    assert dict(decode_partition_key(key)) == {name: value and str(value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("2024/01", r"'{year:int}/{month}/{day}'"),
        ("2024/01/31/12", r"'{year:int}/{month}/{day}'"),
        ("x/01/31", r"'x'.*'{year:int}/{month}/{day}'.*'{year:int}'"),
        ("99999999999999999999/01/31", "'{year:int}'"),
        ("9999999999999999999/01/31", "int64"),
        (".", "template"),
    ],
)
def test_a_folder_that_does_not_fit_is_named(tmp_path: Path, path: str, message: str) -> None:
    """The error for a file whose folders do not fit the template has its path and the template.

    If the folder were ignored, rows would be missing.
    """
    _write(tmp_path / "2024/01/31/x.parquet", a=[1])
    _write(tmp_path / path / "y.parquet", a=[1])
    with pytest.raises(TableFormatError, match=rf"y\.parquet.*{message}"):
        _table(tmp_path, "{year:int}/{month}/{day}").snapshot()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "''"),
        (5, r"\b5\b"),
        ("fixed", "'fixed'"),
        ("{a}{b}", r"\{a\}\{b\}"),
        ("{a}/{a}", r"\{a\}/\{a\}"),
        ("{}", r"'\{\}'"),
        ("{a/b}", r"\{a/b\}"),
        ("{a:float}", r"'float'.*\btext, int, date\b"),
        ("{a", r"'\{a'"),
        ("{a}//{b}", r"\{a\}//\{b\}"),
    ],
)
def test_invalid_templates_are_named(tmp_path: Path, template: Any, message: str) -> None:
    """Opening a table with an invalid template is an error, which names the template."""
    _write(tmp_path / "x.parquet", a=[1])
    with pytest.raises(ConfigError, match=rf"'t'.*options\.template.*{message}"):
        _table(tmp_path, template)


def test_another_template_is_another_fragment(tmp_path: Path) -> None:
    """One file has another fragment id with each template, because its partition values differ."""
    _write(tmp_path / "1" / "x.parquet", a=[1])
    ids = {_table(tmp_path, template).snapshot().fragments[0].id for template in ("{a}", "{b}", None)}
    assert len(ids) == 3


def test_files_have_no_history(tmp_path: Path) -> None:
    """A table of files cannot be read as of a time.

    The error names the time.
    """
    _write(tmp_path / "x.parquet", a=[1])
    table = _table(tmp_path, at="2024-01-01")
    for ask in (table.snapshot, table.snapshot_id, table.current):
        with pytest.raises(SnapshotNotFoundError, match="'2024-01-01'"):
            ask()


_TEXTS = st.sampled_from(["a", "b", "ab", "a-1", "x%2Fy", "__HIVE_DEFAULT_PARTITION__"])
_PATTERNS = st.lists(st.sampled_from(["a", "a*", "*", "?b", "x/y", "__HIVE_DEFAULT_PARTITION__", "z"]), min_size=1)


@given(
    st.sets(st.tuples(_TEXTS, _TEXTS), min_size=1, max_size=6),
    st.dictionaries(st.sampled_from(["p", "q"]), _PATTERNS, max_size=2),
    st.booleans(),
)
def test_a_filter_of_folders_equals_a_filter_of_partitions(
    folders: set[tuple[str, str]], patterns: dict[str, list[str]], by_template: bool
) -> None:
    """The fragments of matching partitions are the same as without the filter.

    If no partition matches, the error says so.
    """
    template = "p={p}/q={q}" if by_template else None
    with tempfile.TemporaryDirectory() as name:
        for number, (p, q) in enumerate(sorted(folders)):
            _write(Path(name) / f"p={p}" / f"q={q}" / "x.parquet", a=[number])
        full_snapshot = _table(Path(name), template).snapshot()
        filter_ = PartitionFilter.of({column: tuple(texts) for column, texts in patterns.items()}).bind("t", {})
        expected_fragments = [
            fragment
            for fragment in full_snapshot.fragments
            if filter_.may_match(decode_partition_key(fragment.partition_key))
        ]
        table = _table(Path(name), template, partitions=patterns)
        if not expected_fragments:
            with pytest.raises(TableNotFoundError, match="partitions"):
                table.snapshot()
            return
        snapshot = table.snapshot()
        assert [(f.id, f.partition_key) for f in snapshot.fragments] == [
            (f.id, f.partition_key) for f in expected_fragments
        ]
        assert table.snapshot_id() == snapshot.id
        assert read_columns(snapshot) == read_columns(full_snapshot, expected_fragments)


def test_excluded_folders_are_not_listed(tmp_path: Path) -> None:
    """An unrecognised file and a link to a folder above do not matter in excluded partitions.

    An unknown column in the filter is an error.
    """
    _write(tmp_path / "day=1" / "x.parquet", a=[1])
    (tmp_path / "day=2").mkdir()
    (tmp_path / "day=2" / "README").write_text("no data")
    os.symlink(tmp_path, tmp_path / "day=3")
    assert read_columns(_table(tmp_path, partitions={"day": "1"}).snapshot()) == {"a": [1], "day": ["1"]}
    with pytest.raises(TableFormatError, match="'dya'"):
        _table(tmp_path, partitions={"dya": "1", "day": "1"}).snapshot()


def _registered(folder: Path, type_: str, partitions: dict[str, str]) -> TableFormat:
    """Return a table with partitions that a catalog registers.

    `type_` is the type of the column `p`, and `partitions` has its value by folder.
    """
    registered_folders = tuple(PartitionFolder((value,), str(folder / path)) for path, value in partitions.items())
    context = OpenContext(MetadataCache(), partitions=RegisteredFolders((("p", type_),), registered_folders))
    return FilesFormat(TableConfig(name="t", uri=str(folder)), context)


def test_registered_folders_have_any_name(tmp_path: Path) -> None:
    """Registered folders are read even if their names, or those of folders above, are ignored elsewhere.

    Below a registered folder, folders with ignored names are ignored.
    """
    folders = ("_a", "b.old", "c/.x", "_d/~/y", "e")
    for path in (*folders, "_unregistered", "e/_temporary"):
        _write(tmp_path / path / "x.parquet", v=[path])
    snapshot = _registered(tmp_path, "int", {path: str(number) for number, path in enumerate(folders)}).snapshot()
    assert read_columns(snapshot) == {"v": [*folders], "p": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("value", ["20240105", "2024-W01-5", "2024-1-5", " 2024-01-05", "2024-01-32"])
def test_a_registered_date_has_the_form_of_sql(tmp_path: Path, value: str) -> None:
    _write(tmp_path / "x" / "x.parquet", v=[1])
    with pytest.raises(TableFormatError, match=rf"p = '{value}'.*date32"):
        _registered(tmp_path, "date", {"x": value}).snapshot()
