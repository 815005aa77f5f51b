"""Delta tables with unsupported reader features are refused, and those with supported ones are read.

A fragment is a data file and the deletes on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from metastore_assets.config import TableConfig
from metastore_assets.errors import TableFormatError
from metastore_assets.formats import Snapshot, open_table_format
from tests.formats.delta.log_writer import add_file, commit, field, mapped, metadata, protocol
from tests.formats.oracle import read_columns


def _snapshot(table: Path) -> Snapshot:
    return open_table_format(TableConfig(name="t", uri=str(table))).snapshot()


def _table(folder: Path, needs: dict[str, Any], **configuration: str) -> Path:
    commit(folder, needs, metadata([field("a", "long")], **configuration), add_file(folder, pa.table({"a": [1]})))
    return folder


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview", "someThingNew"])
def test_the_error_names_an_unsupported_feature(tmp_path: Path, feature: str) -> None:
    with pytest.raises(TableFormatError, match=f"{tmp_path}.*{feature}"):
        _snapshot(_table(tmp_path, protocol("deletionVectors", feature)))


@pytest.mark.parametrize(
    "feature",
    ["deletionVectors", "timestampNtz", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "variantType"],
)
def test_tables_with_supported_features_are_read(tmp_path: Path, feature: str) -> None:
    """Tables that declare supported features, without using them, are read."""
    assert read_columns(_snapshot(_table(tmp_path, protocol(feature)))) == {"a": [1]}


def test_a_newer_protocol_is_refused(tmp_path: Path) -> None:
    """The error for a protocol with an unsupported reader version has this version."""
    with pytest.raises(TableFormatError, match=r"\bversion 4\b"):
        _snapshot(_table(tmp_path, {"protocol": {"minReaderVersion": 4, "minWriterVersion": 7}}))


def test_features_for_writers_are_ignored(tmp_path: Path) -> None:
    """A table is read although writers need special features.

    Examples are generated, identity and default columns, constraints, row tracking, and an unknown feature.
    """
    features = ["generatedColumns", "identityColumns", "allowColumnDefaults", "checkConstraints", "rowTracking", "new"]
    needs = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}
    fields = [
        field("id", "long", **{"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": 2}),
        field("twice", "long", **{"delta.generationExpression": "id * 2"}),
        field("given", "string", CURRENT_DEFAULT="'x'"),
        field("code", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)"),
    ]
    settings = {"delta.constraints.c": "id > 0", "delta.enableRowTracking": "true"}
    data = pa.table({"id": [1, 2], "twice": [2, 4], "_row-id-col": [7, 8], "code": ["a", None]})
    commit(tmp_path, needs, metadata(fields, **settings), add_file(tmp_path, data))
    assert read_columns(_snapshot(tmp_path)) == {
        "id": [1, 2],
        "twice": [2, 4],
        "given": [None, None],
        "code": ["a", None],
    }


@pytest.mark.parametrize(
    ("needs", "is_mapped"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, False),
        ({"minReaderVersion": 2, "minWriterVersion": 5}, True),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}, False),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"]}, True),
    ],
)
def test_column_mapping_needs_the_protocol_feature(tmp_path: Path, needs: dict[str, Any], is_mapped: bool) -> None:
    """The property for column mapping applies with reader version 2, or with the feature in version 3.

    Otherwise the property has no effect, as in delta-kernel.
    """
    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    needs = needs | ({"writerFeatures": needs["readerFeatures"]} if "readerFeatures" in needs else {})
    data = pa.table({"p1": [1], "a": [2]})
    commit(tmp_path, {"protocol": needs}, metadata([mapped("a", "long", 1)], **settings), add_file(tmp_path, data))
    assert read_columns(_snapshot(tmp_path)) == {"a": [1 if is_mapped else 2]}


def test_an_unknown_mapping_mode_is_refused(tmp_path: Path) -> None:
    """The error for an unknown column mapping mode names the mode."""
    with pytest.raises(TableFormatError, match="'position'"):
        _snapshot(_table(tmp_path, protocol("columnMapping"), **{"delta.columnMapping.mode": "position"}))


def test_a_mapping_mode_of_null_is_none(tmp_path: Path) -> None:
    """If the table property for the column mapping mode is null in JSON, there is no column mapping."""
    metadata_action = metadata([field("a", "long")])
    metadata_action["metaData"]["configuration"] = {"delta.columnMapping.mode": None}
    commit(tmp_path, protocol("columnMapping"), metadata_action, add_file(tmp_path, pa.table({"a": [1]})))
    assert read_columns(_snapshot(tmp_path)) == {"a": [1]}


def test_files_of_another_format_are_refused(tmp_path: Path) -> None:
    """The error names ORC, if the metadata action has ORC as the format of data files."""
    metadata_action = metadata([field("a", "long")])
    metadata_action["metaData"]["format"]["provider"] = "orc"
    commit(tmp_path, protocol(), metadata_action)
    with pytest.raises(TableFormatError, match=r"\borc\b"):
        _snapshot(tmp_path)


def test_coordinated_commits_are_refused(tmp_path: Path) -> None:
    """A table with coordinated commits is refused.

    Its newest commits are stored elsewhere, so the log would show an outdated state.
    """
    settings = {"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"}
    with pytest.raises(TableFormatError, match=r"\bdynamodb\b"):
        _snapshot(_table(tmp_path, protocol(), **settings))


def test_the_error_names_an_unknown_column_type(tmp_path: Path) -> None:
    """The error for a column of an unknown type names the column and the type."""
    commit(tmp_path, protocol(), metadata([field("a", "interval year")]))
    with pytest.raises(TableFormatError, match=r"'a'.*'interval year'"):
        _snapshot(tmp_path)


def test_the_newest_protocol_and_metadata_apply(tmp_path: Path) -> None:
    """The newest version has the last protocol and schema.

    Version 0 has the schema of its own commit.
    """
    _table(tmp_path, protocol())
    commit(tmp_path, {"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}, metadata([field("b", "long")]))
    with pytest.raises(TableFormatError, match=r"\bversion 9\b"):
        _snapshot(tmp_path)
    commit(tmp_path, protocol())
    assert _snapshot(tmp_path).schema.names == ["b"]
    before = open_table_format(TableConfig(name="t", uri=str(tmp_path), at="0")).snapshot()
    assert before.schema.names == ["a"]


def test_a_checkpoint_has_the_state_of_the_removed_commits(tmp_path: Path) -> None:
    """Schema and fragments are the same when only the checkpoint is left."""
    _table(tmp_path, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, **{"delta.appendOnly": "false"})
    before = _snapshot(tmp_path)
    DeltaTable(str(tmp_path)).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    after = _snapshot(tmp_path)
    assert (after.schema, after.fragments) == (before.schema, before.fragments)
