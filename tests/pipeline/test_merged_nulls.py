"""Statistics of a partition with several small files include the nulls of all files.

One of these statistics is the multiset hash, which is equal for columns with the same values and nulls in any order.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.pipeline.test_compacted_value_counts import Lake


def test_nulls_of_several_files_are_in_the_multiset_hash(tmp_path: Path) -> None:
    """The hash of rows in several files equals that of the same rows in one."""
    parts = [
        pa.table({"a": pa.array([1, None, 2, None], pa.int64())}),
        pa.table({"a": pa.array([2, 3, None], pa.int64())}),
        pa.table({"a": pa.array([None, 4], pa.int64())}),
    ]
    answer = []
    for name, tables in (("several", parts), ("one", [pa.concat_tables(parts)])):
        lake = Lake(tmp_path / name)
        for at, table in enumerate(tables):
            lake.put(f"p=1/{at}", table)
        lake.put("p=2/other", parts[0])
        lake.refresh()
        answer.append([lake.answers.profiles.profile(partition).statistics(["a"])[0] for partition in (None, "p=1")])
    for several, one in zip(*answer, strict=True):
        assert (several.value_count, several.null_count) == (one.value_count, one.null_count)
        assert several.multiset_hash == one.multiset_hash
