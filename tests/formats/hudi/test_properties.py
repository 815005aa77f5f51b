"""Properties of Hudi tables are read as Java writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.hudi.timeline import load_properties
from metastore_assets.storage.location import Location


def test_line_feeds_and_tabs_in_values_are_escapes(tmp_path: Path) -> None:
    """Escaped line feeds and tabs in values are decoded, and not read as the letters n and t.

    A schema of several lines has such escapes.
    """
    (tmp_path / ".hoodie").mkdir()
    text = "hoodie.table.name=t\n" + r"hoodie.table.create.schema={\n\t\"type\"\:\"record\"}" + "\n"
    (tmp_path / ".hoodie/hoodie.properties").write_text(text)
    assert load_properties(Location.of(str(tmp_path))) == {
        "hoodie.table.name": "t",
        "hoodie.table.create.schema": '{\n\t"type":"record"}',
    }


def test_a_table_without_a_name_is_an_error(tmp_path: Path) -> None:
    """The error for properties without the table's name names the missing property."""
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie/hoodie.properties").write_text("hoodie.table.version=6\n")
    with pytest.raises(TableFormatError, match=r"hoodie\.table\.name"):
        load_properties(Location.of(str(tmp_path)))
