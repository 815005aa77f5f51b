"""Functions that several formats use: path mappings, partition filters, times, and column paths."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.errors import SnapshotNotFoundError
from metastore_assets.expressions.partition_filter import PartitionFilter
from metastore_assets.formats.base import state_not_found
from metastore_assets.formats.bounds import column_path
from metastore_assets.storage.location_policy import PathMapping, path_without_origin


@pytest.mark.parametrize(
    ("recorded_location", "now"),
    [
        ("/old/t/data/a.parquet", "/new/t/data/a.parquet"),
        ("hdfs://host:8020/old/t/a", "/new/t/a"),
        ("file:///old/t/a", "/new/t/a"),
        ("file:/old/t/a", "/new/t/a"),
        ("/old/t", "/new/t"),
        ("/old/table/a", "/old/table/a"),
        ("/old/t/special/a", "s3://bucket/here/a"),
        ("s3://b/old/t2/a", "/two/a"),
        ("gs://b/old/t2/a", "gs://b/old/t2/a"),
        ("/x/old/t/a", "/x/old/t/a"),
        ("data/persistent/t/a", "/relative/t/a"),
    ],
)
def test_a_recorded_location_is_mapped_by_its_longest_prefix_of_segments(recorded_location: str, now: str) -> None:
    path_mapping = PathMapping.of(
        {
            "/old/t/": "/new/t",
            "/old/t/special": "s3://bucket/here/",
            "s3://b/old/t2": "/two",
            "data/persistent": "/relative",
        }
    )
    assert path_mapping.apply(recorded_location) == now


def test_the_path_of_a_location_lacks_scheme_and_authority() -> None:
    for uri in ("hdfs://host:20500/a/b", "hdfs:///a/b", "file:/a/b", "file:///a/b", "/a/b"):
        assert path_without_origin(uri) == "/a/b"
    assert path_without_origin("a/b:c/d") == "a/b:c/d"


def test_a_filter_selects_partitions_that_match_a_pattern_of_each_column() -> None:
    filter_ = PartitionFilter.of({"day": ("2024-01-*", "2023-12-31"), "country": ("FR",)})
    bound_filter = filter_.bind("t", {})
    assert bound_filter.may_match([("day", "2024-01-05"), ("country", "FR")])
    assert bound_filter.may_match([("day", "2023-12-31")])
    assert bound_filter.may_match([("hour", "1")])
    assert not bound_filter.may_match([("day", "2024-02-01")])
    assert not bound_filter.may_match([("day", "2024-01-05"), ("country", "fr")])
    assert filter_.unknown_columns(["day"]) == ["country"]
    assert PartitionFilter().bind("t", {}).may_match([("day", None)])


def test_null_is_matched_only_by_its_name() -> None:
    assert not PartitionFilter.of({"day": ("*",)}).bind("t", {}).may_match([("day", None)])
    assert PartitionFilter.of({"day": ("__HIVE_DEFAULT_PARTITION__",)}).bind("t", {}).may_match([("day", None)])


@given(
    st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from(["x*", "?", "xy", "[xz]*"])), max_size=3),
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y", "xy", "zz", None])), unique_by=lambda i: i[0]
    ),
)
def test_partitions_excluded_by_their_first_columns_are_not_listed(
    patterns: dict[str, tuple[str, ...]], items: list[tuple[str, str | None]]
) -> None:
    """If the first columns of a partition do not match a filter, the whole partition does not match it."""
    bound_filter = PartitionFilter.of(patterns).bind("t", {})
    matches = [bound_filter.may_match(items[:depth]) for depth in range(len(items) + 1)]
    assert matches == sorted(matches, reverse=True)


def test_the_error_for_an_unknown_state_lists_the_states() -> None:
    error = state_not_found("lake/t", "9", "versions", range(3))
    assert isinstance(error, SnapshotNotFoundError)
    assert re.search(r"lake/t\b.*'9'.*\b0, 1, 2$", str(error))
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …, 90," in str(state_not_found("t", "x", "versions", range(100)))


def test_a_column_is_resolved_by_its_dotted_path_at_every_depth() -> None:
    schema = pa.schema(
        [
            pa.field("a.b", pa.int8()),
            pa.field("a", pa.struct([pa.field("b", pa.int16()), pa.field("c.d", pa.list_(pa.int32()))])),
            pa.field("m", pa.map_(pa.string(), pa.struct([pa.field("x", pa.date32())]))),
        ]
    )
    types = {path: column_path(schema, path)[-1].type for path in ("a.b", "a.c.d.element", "m.key", "m.value.x")}
    assert types == {
        "a.b": pa.int8(),
        "a.c.d.element": pa.int32(),
        "m.key": pa.string(),
        "m.value.x": pa.date32(),
    }
    for path in ("b", "a", "a.c", "m.value", "a.c.d", "a.b.c"):
        with pytest.raises(KeyError, match=f"'{path}'"):
            column_path(schema, path)
