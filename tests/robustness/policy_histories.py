"""Random histories of tables and their policies, with refreshes that are killed or lose a race.

A policy says which statistics and values of a column are stored. The value counts of a column are its distinct values
with the frequency of each. A purge removes older versions and the statistics of removed rows without a grace period. A
version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.purge import purge
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.pipeline.value_counts.compact import compact
from tests.pipeline.file_lake import assert_same, everything
from tests.robustness.column_kinds import ALL_KINDS, FLAT
from tests.robustness.delta_tables import DeltaCopyOnWrite, DeltaMapped
from tests.robustness.file_tables import PlainFiles
from tests.robustness.histories import History
from tests.robustness.iceberg_tables import IcebergCopyOnWrite
from tests.robustness.interruptions import at_change, killed_at
from tests.robustness.refresh_assertions import no_spark, versions

SHIPPED = "metastore_assets.statistics.user_defined.shipped"
CUSTOM_STATISTICS = [
    f"{SHIPPED}:{name}" for name in ("Benford", "StringPatterns", "LongestCommonPrefix", "OutsideFences")
]
POLICIES: list[dict[str, Any]] = [
    {},
    {"frequencies": "all"},
    {"frequencies": "off"},
    {"frequencies": "repeated"},
    {"frequencies": "repeated", "algorithm": "fingerprints"},
    {"by_partition": "on"},
    {"frequencies": "top(2)"},
    {"ranks": "on"},
    {"ranks": "on", "by_partition": "on", "value_filter": "on"},
    {"histogram": "off"},
    {"histogram": 4000, "quantiles": "off"},
    {"frequencies": "off", "statistics": CUSTOM_STATISTICS[:3], "value_filter": "on"},
    {"statistics": CUSTOM_STATISTICS},
    {"values": "hidden"},
]
_CHANGES = 30
"""A refresh is interrupted at one of its first 30 changes of files. A small refresh makes slightly fewer."""


class Policies(History):
    """A table whose rows and policies change.

    Some steps compact the table's value counts, expire old versions, or purge.
    """

    policy_steps: ClassVar = ("policy", "compact_lists", "expire", "purge")
    kinds: ClassVar = ALL_KINDS

    def append(self, count: int | None = None) -> None:
        """Append `3 * count` rows, or, without `count`, so few that value counts are updated and not rebuilt."""
        super().append(self.draw.randrange(1, 12) if count is None else 3 * count)

    def config(self) -> MetastoreConfig:
        columns = getattr(self, "columns", {})
        present = {column: policy for column, policy in columns.items() if column in (*self._named(), "p")}
        table = TableConfig.model_validate({"name": "t", "uri": str(self.uri), "columns": present})
        return MetastoreConfig(root=str(self.folder / "root"), engine="auto", keep_versions=3, tables=[table])

    def _named(self) -> list[str]:
        return ["default", *(name for name in self.live().column_names if name != "p")]

    def policy(self) -> None:
        """Give a random policy to one or two columns, or to all columns.

        Other columns get the default policy.
        """
        columns = {self.draw.choice(self._named()): self.draw.choice(POLICIES) for _ in range(2)}
        if "default" in columns:
            # Partition columns cannot be hidden.
            columns = {"default": columns["default"], "p": {"values": "shown"}}
        self.columns = columns

    def compact_lists(self) -> None:
        compact(versions(self.config()), self.config().tables[0])

    def expire(self) -> None:
        versions(self.config()).expire(1, timedelta(days=-1))

    def purge(self) -> None:
        store = versions(self.config())
        purge(Engine(no_spark, "auto"), store, store.newest())

    def refresh(self) -> str:
        """Refresh the table: undisturbed, killed and then repeated, or while others publish.

        Return a description of what happened.
        """
        what = self.draw.choice(["alone", "alone", "killed", "raced", "raced by a commit", "raced by a compaction"])
        number = self.draw.randrange(_CHANGES)
        if what == "killed":
            self._killed(number)
        elif what == "alone":
            refreshed(self.config())
        else:
            config, root = self.config(), self.folder / "root"

            def overtake() -> None:
                if what == "raced by a commit":
                    self.take("append")
                if what == "raced by a compaction":
                    self.compact_lists()
                else:
                    refreshed(self.config())

            with at_change(root, number, overtake):
                refreshed(config)
            # What was committed meanwhile is left to the next refresh; otherwise all is done.
            if what == "raced by a commit":
                refreshed(self.config())
        return f"{what} at {number}"

    def _killed(self, number: int) -> None:
        before, version = everything(self.config()), versions(self.config()).newest()
        with killed_at(self.folder / "root", number) as dead:
            refreshed(self.config())
        if dead and versions(self.config()).newest() == version:
            assert_same(everything(self.config()), before)
            refreshed(self.config())


class FilePolicies(Policies, PlainFiles):
    steps: ClassVar = (*PlainFiles.steps, *Policies.policy_steps, "policy")


class FewPartitions(FilePolicies):
    """A table of files in two partitions.

    Refreshes of such a table are the fastest, so it is used for many histories.
    """

    partitions: ClassVar = ("a", None)


class DeltaPolicies(Policies, DeltaCopyOnWrite):
    steps: ClassVar = (*DeltaCopyOnWrite.steps, *Policies.policy_steps)


class MappedPolicies(Policies, DeltaMapped):
    steps: ClassVar = (*DeltaMapped.steps, *Policies.policy_steps)
    kinds: ClassVar = FLAT


class IcebergPolicies(Policies, IcebergCopyOnWrite):
    steps: ClassVar = (*IcebergCopyOnWrite.steps, *Policies.policy_steps)


def refreshed(config: MetastoreConfig) -> None:
    """Refresh the only table, without Spark."""
    refresh(config, config.tables[0], no_spark)
