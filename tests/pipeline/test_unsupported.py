"""Files that are intact but unsupported: no message advises to repair or remove them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pytest

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import ProfileError
from metastore_assets.pipeline.refresh import refresh
from tests.robustness.refresh_assertions import no_spark


def _avro(path: Path, type_: Any, values: list[Any]) -> None:
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": "a", "type": type_}]}
    fastavro.writer(sink, fastavro.parse_schema(schema), [{"a": value} for value in values])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(sink.getvalue())


@pytest.mark.parametrize("damaged", [True, False])
@pytest.mark.parametrize("unsupported", [True, False])
def test_unsupported_and_damaged_files_have_different_advice(tmp_path: Path, damaged: bool, unsupported: bool) -> None:
    """A damaged file may be removed; an unsupported one has rows that somebody would miss."""
    lake = tmp_path / "lake"
    _avro(lake / "good.avro", "int", [1, 2])
    if damaged:
        _avro(lake / "damaged.avro", "int", [1, 2])
        data = (lake / "damaged.avro").read_bytes()
        (lake / "damaged.avro").write_bytes(data[:-4] + b"none")
    if unsupported:
        _avro(lake / "union.avro", ["int", "long", "string"], [1, "a"])
    table = TableConfig(name="t", uri=str(lake))
    config = MetastoreConfig(root=str(tmp_path / "root"), engine="auto", tables=[table])
    if not damaged and not unsupported:
        assert refresh(config, table, no_spark).version == 1
        return
    with pytest.raises(ProfileError) as caught:
        refresh(config, table, no_spark)
    message = str(caught.value)
    assert ("end with the file's marker" in message) == damaged
    assert ("union.avro: the file is not supported" in message) == unsupported
    assert ("Repair or remove" in message) == damaged
    assert ("do not remove these files" in message) == (not damaged)
    assert ("do not remove files" in message) == (damaged and unsupported)
