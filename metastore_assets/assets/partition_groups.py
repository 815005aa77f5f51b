"""Groups of a table's partitions that are one partition in Dagster.

For example, `day=2024-01-01` is the group of all of its hours. A content id is a digest: equal content ids of a
partition or group mean equal statistics. A version is the published statistics of a table at one snapshot. It has an
entry for each partition, with the partition's numbers of rows, bytes and fragments. A fragment is a data file with the
deletes that apply to it.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from metastore_assets.errors import ConfigError
from metastore_assets.expressions.partition_keys import encode_partition_key
from metastore_assets.store.entries import PARTITIONS, partition_contents
from metastore_assets.store.entry_changes import entries_of
from metastore_assets.store.version import PartitionEntry, ProfileFiles, Version

_LOOKUPS = 1000
"""Maximum number of groups that are looked up by prefix; for more, all partitions are read."""


@dataclass(frozen=True)
class PartitionGroup(PartitionEntry):
    """The entry of a group of partitions, with the sums of their rows, bytes and fragments.

    A group has no files. The `version` of a partition's entry is the number of the version that computed its
    statistics. The `version` of a group is the greatest of its partitions.
    """

    partitions: int = 0
    """Number of partitions in the group."""


@dataclass(frozen=True)
class PartitionGrouping:
    """A rule by which partitions of a table are grouped for Dagster.

    Without columns, each partition is a group.

    The key of a group is the common prefix of its partitions' keys. With the column `day`, the partition
    `day=2024-01-01/hour=7` belongs to the group `day=2024-01-01`. A partition whose key does not begin with the
    columns, such as one of an older partition spec, is a group by itself.
    """

    columns: tuple[str, ...] = ()
    """The partition columns that identify a group: the first of the table's partition columns."""

    def contents(self, version: Version) -> dict[str, str]:
        """Return the content id of each group of a version, by ascending group key.

        Raises:
            ConfigError: The grouping's columns are not the first partition columns of the version.
        """
        contents = partition_contents(version)
        if not self.columns:
            return contents
        if version.partition_columns[: len(self.columns)] != self.columns:
            raise ConfigError(
                f"table {version.table!r}: `dagster.partition_columns` has {', '.join(self.columns)}: name the first "
                f"of the table's partition columns ({', '.join(version.partition_columns) or 'it has none'})"
            )
        return self._group_contents(list(contents), list(contents.values()))

    def key_of(self, key: str) -> str:
        """Return the group key of a partition key."""
        match = re.match(self._pattern, key) if self.columns else None
        return match["group"] if match else key

    def members(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Group partition keys: `{"day=1": ["day=1/hour=6", "day=1/hour=7"]}`.

        Groups and keys are ascending.
        """
        groups: dict[str, list[str]] = {}
        for key in sorted(keys):
            groups.setdefault(self.key_of(key), []).append(key)
        return dict(sorted(groups.items()))

    def find_members(self, version: Version, groups: Collection[str]) -> Sequence[PartitionEntry]:
        """Return the partitions of the given groups, by ascending key.

        Groups that do not exist are ignored.
        """
        entries = entries_of(version, PARTITIONS)
        if not self.columns:
            partitions = entries.find_all(groups)
            return [partitions[key] for key in sorted(partitions)]
        selected_groups = set(groups)
        if len(selected_groups) > _LOOKUPS:
            return [entry for entry in entries if self.key_of(entry.key) in selected_groups]
        candidates = {entry.key: entry for entry in entries.find_prefixes([f"{group}/" for group in selected_groups])}
        candidates.update(entries.find_all(selected_groups))
        return [candidates[key] for key in sorted(candidates) if self.key_of(key) in selected_groups]

    def find(self, version: Version, groups: Collection[str]) -> dict[str, PartitionEntry]:
        """Return the entry of each given group, by ascending group key.

        Groups that do not exist are ignored.
        """
        members = self.find_members(version, groups)
        if not self.columns:
            return {entry.key: entry for entry in members}
        contents = self._group_contents([entry.key for entry in members], [entry.content_id for entry in members])
        by_group: dict[str, list[PartitionEntry]] = {}
        for entry in members:
            by_group.setdefault(self.key_of(entry.key), []).append(entry)
        return {group: _merge_entries(group, contents[group], by_group[group]) for group in sorted(by_group)}

    @cached_property
    def _pattern(self) -> str:
        """A regular expression that matches partition keys whose first columns are `columns`.

        It is valid in Python and Arrow. The part of the key that it captures as `group` is the key of the group of
        partitions. For the columns `("day",)`, that is `day=1` of the key `day=1/hour=6`.
        """
        names = [encode_partition_key([(column, "")]) for column in self.columns]
        return f"^(?P<group>{'/'.join(f'{re.escape(name)}[^/]*' for name in names)})(?:/|$)"

    def _group_contents(self, keys: Sequence[str], contents: Sequence[str]) -> dict[str, str]:
        """Return the content id of each group, by ascending group key.

        Args:
            keys: The partition keys in ascending order.
            contents: The content id of each partition.
        """
        key_array = pa.array(keys, pa.string())
        groups = pc.coalesce(pc.struct_field(pc.extract_regex(key_array, self._pattern), "group"), key_array)
        lines = pc.binary_join_element_wise(key_array, pa.array(contents, pa.string()), " ")
        # A stable sort retains the order of keys in each group.
        order = pc.sort_indices(pa.table({"group": groups}), [("group", "ascending")])
        groups, lines = groups.take(order), lines.take(order)
        encoded_groups = pc.run_end_encode(groups, run_end_type=pa.int64())
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), encoded_groups.run_ends]) if len(keys) else pa.array([0])
        texts = pc.binary_join(pa.LargeListArray.from_arrays(offsets, lines), "\n").to_pylist()
        return {
            group: hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
            for group, text in zip(encoded_groups.values.to_pylist(), texts, strict=True)
        }


UNGROUPED = PartitionGrouping()
"""The rule of a table whose partitions are not grouped."""


def _merge_entries(group: str, content_id: str, entries: Sequence[PartitionEntry]) -> PartitionGroup:
    """Return one entry for a group of partitions.

    The entry has the sums of the row counts, sizes and numbers of fragments of the partitions.
    """
    return PartitionGroup(
        group,
        content_id,
        sum(entry.row_count for entry in entries),
        sum(entry.bytes for entry in entries),
        sum(entry.fragments for entry in entries),
        ProfileFiles("", "", ()),
        max(entry.version for entry in entries),
        partitions=len(entries),
    )
