"""Record keys of tables without meta fields are built as the key generator builds them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import FragmentError
from metastore_assets.formats import open_table_format
from tests.formats.hudi.writer import FIELDS, HudiWriter
from tests.formats.oracle import read_columns

_TYPE, _CLASS = "hoodie.table.keygenerator.type", "hoodie.table.keygenerator.class"
_NUMBER = {"name": "number", "type": ["null", "long"], "default": None}
_ROWS: list[dict[str, Any]] = [{"key": "a", "number": 1}, {"key": "b", "number": 2}, {"key": "a", "number": None}]


def _write(folder: Path, key: str, deleted_keys: Iterable[str], **properties: str) -> HudiWriter:
    """Write a base file, and a log file with an unchanged row and deletes by record key.

    `key` names the key fields. With several key fields, the base file also has a row with a null in one of them.
    """
    writer = HudiWriter(folder, 9, by_commit=True, fields=[FIELDS[0], _NUMBER])
    writer.meta_columns = []
    properties |= {"hoodie.populate.meta.fields": "false", "hoodie.table.recordkey.fields": key}
    writer.set_properties(**properties)
    instant = writer.tick()
    one = writer.new_slice("x", instant)
    stat = writer.base_file(one, instant, _ROWS if "," in key else _ROWS[:2])
    one.base_name = stat["path"].rpartition("/")[2]
    writer.complete(instant, "deltacommit", [stat])
    instant = writer.tick()
    changes = [{"key": "b", "number": 2}]
    stat = writer.log_file(one, instant, changes, dict.fromkeys(deleted_keys, 0))
    writer.complete(instant, "deltacommit", [stat])
    return writer


def _rows(folder: Path) -> list[tuple[Any, ...]]:
    columns = read_columns(open_table_format(TableConfig(name="t", uri=str(folder))).snapshot())
    return sorted(zip(columns["key"], columns["number"], strict=True), key=repr)


@pytest.mark.parametrize(
    ("key", "deleted_key", "properties", "expected"),
    [
        ("key", "a", {_TYPE: "SIMPLE"}, [("b", 2)]),
        ("key", "a", {}, [("b", 2)]),
        ("number", "1", {_TYPE: "NON_PARTITION"}, [("b", 2)]),
        ("key,number", "key:a,number:1", {_TYPE: "COMPLEX"}, [("a", None), ("b", 2)]),
        ("key,number", "key:a,number:__null__", {_TYPE: "COMPLEX"}, [("a", 1), ("b", 2)]),
        ("key,number", "key:a,number:1", {}, [("a", None), ("b", 2)]),
        ("key", "a", {_TYPE: "CUSTOM"}, [("b", 2)]),
    ],
)
def test_records_are_deleted_by_keys_that_are_built_from_fields(
    tmp_path: Path, key: str, deleted_key: str, properties: dict[str, str], expected: list[tuple[Any, ...]]
) -> None:
    """A delete in a log file applies to the record whose fields give the record key of the delete.

    The key generator builds keys from fields. A key of several fields has their names, and a placeholder for null.
    """
    _write(tmp_path / "t", key, [deleted_key], **properties)
    assert _rows(tmp_path / "t") == expected


@pytest.mark.parametrize(
    "generator", [{_TYPE: "COMPLEX"}, {_CLASS: "org.apache.hudi.keygen.ComplexAvroKeyGenerator"}], ids=["type", "class"]
)
@pytest.mark.parametrize("deleted_key", ["a", "key:a"])
def test_deletes_by_ambiguous_keys_are_refused(tmp_path: Path, generator: dict[str, str], deleted_key: str) -> None:
    """Deletes are refused if their record keys are ambiguous; updates without deletes are read.

    The key generator is for keys of several fields, and the key has one field. Hudi may then write the key as `a` or as
    `key:a`.
    """
    _write(tmp_path / "t", "key", [deleted_key], **generator)
    with pytest.raises(FragmentError, match="key generator"):
        _rows(tmp_path / "t")
    _write(tmp_path / "updates", "key", [], **generator)
    assert _rows(tmp_path / "updates") == [("a", 1), ("b", 2)]
