"""The stages of a refresh: objects that describe their work as text and JSON.

The plan of a refresh is a list of stages, such as the profiling of fragments. A dry run prints the stages that a
refresh would execute. A fragment is a data file with its deletes. A profile is the statistics of a fragment, a
partition or the table. Value counts are the distinct values of a column with their frequencies. A lot is a limited
number of fragments that are processed together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

_NAMES_SHOWN = 5
"""Maximum number of columns or partitions that a line of text names. JSON has all of them."""


@dataclass(frozen=True)
class PlanStage(ABC):
    """One stage of a plan.

    Fields of a subclass describe the work that is known before profiling.
    """

    name: ClassVar[str]
    step: ClassVar[str]
    """The key in `RefreshResult.steps` under which reads and writes of the stage are counted."""
    rule: ClassVar[str] = ""
    """How the remaining work is decided after profiling; empty if planning decides everything."""
    reads_stored_state: ClassVar[bool] = False
    """Whether the stage reads files that the last version references."""

    @abstractmethod
    def summary(self) -> str:
        """Return a short text that names the work of the stage, such as `2 columns ('a', 'b')`."""

    def joined(self, next_lot: Self) -> Self:
        """Return one stage in place of this one and `next_lot`, the stage of the same kind for the next lot.

        The default is this stage itself. Stages that list or count the work of a single lot override the method.
        """
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the stage as it appears in `refresh --dry-run --json`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        content = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {
            "stage": self.name,
            "summary": self.summary(),
            **content,
            **({"rule": self.rule} if self.rule else {}),
        }


@dataclass(frozen=True)
class DivideIntoLots(PlanStage):
    """The stage that divides the fragments of a large table into lots.

    Each lot is profiled and stored before the next one is read. Only the first version of a table is built in lots.
    """

    name = "divide_into_lots"
    step = "plan"
    rule = (
        "profile_fragments to write_indexes run once for each lot; lots that an interrupted refresh has stored are not "
        "repeated"
    )
    fragments: int
    """Number of fragments of the snapshot."""
    lots: int
    """Number of lots to compute. Lots that an interrupted refresh has stored are not counted."""
    stages: tuple[PlanStage, ...] = ()
    """The stages that run for each lot. Each describes the work of all lots together. In text and JSON, they follow
    this stage."""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_json().items() if name != "stages"}

    def summary(self) -> str:
        """Return the numbers of fragments and lots."""
        return f"{_count(self.fragments, 'fragment')} in {_count(self.lots, 'lot')}"


@dataclass(frozen=True)
class ProfileFragments(PlanStage):
    """The stage that reads the fragments without a usable stored profile, and writes a profile for each."""

    name = "profile_fragments"
    step = "profile"
    fragments: int
    bytes: int
    """Stored size in bytes of the fragments."""
    reused: int
    """Number of fragments that are not read, because a stored profile is used."""

    def summary(self) -> str:
        """Return the numbers of fragments and bytes that are read, and the number of reused stored profiles."""
        reused = f"{_count(self.reused, 'stored profile')} {'is' if self.reused == 1 else 'are'} reused"
        return f"{_count(self.fragments, 'fragment')}, {_count(self.bytes, 'byte')}; {reused}"

    def joined(self, next_lot: Self) -> Self:
        # The profiles of this lot are stored profiles for the next one.
        fragments, size = self.fragments + next_lot.fragments, self.bytes + next_lot.bytes
        return replace(self, fragments=fragments, bytes=size, reused=next_lot.reused - self.fragments)


@dataclass(frozen=True)
class ResolveAutoPolicies(PlanStage):
    """The stage that decides whether `auto` and `repeated` columns are stored as value counts."""

    name = "resolve_auto_policies"
    step = "decide"
    rule = (
        "from the numbers of distinct values and of values: a column with too many distinct values, or whose values "
        "hardly repeat, is estimated or fingerprinted; partitions that were merged under another policy are merged too"
    )
    reads_stored_state = True
    columns: tuple[str, ...]

    def summary(self) -> str:
        """Return the number of columns to decide about, with the names of at most five of them."""
        return _names("column", self.columns)


@dataclass(frozen=True)
class DropValueCounts(PlanStage):
    """The stage that removes the value counts of some columns from new profiles.

    These are the columns that the stage `resolve_auto_policies` decides not to store as value counts.
    """

    name = "drop_value_counts"
    step = "decide"
    rule = "of the columns that resolve_auto_policies does not enumerate"
    reads_stored_state = True
    columns: tuple[str, ...]
    """Columns whose value counts may be dropped."""

    def summary(self) -> str:
        """Return the number of columns whose value counts may be dropped, and the names of up to five."""
        return f"of {_names('column', self.columns)} in new profiles, unless they are enumerated"


@dataclass(frozen=True)
class SaveProfiles(PlanStage):
    """The stage that saves new fragment profiles, so that a later refresh can use them if this one fails."""

    name = "save_profiles"
    step = "decide"
    fragments: int

    def summary(self) -> str:
        """Return how many profiles are saved, as text: `3 profiles`."""
        return _count(self.fragments, "profile")

    def joined(self, next_lot: Self) -> Self:
        return replace(self, fragments=self.fragments + next_lot.fragments)


@dataclass(frozen=True)
class SkipRewrites(PlanStage):
    """The stage that reuses published profiles of partitions whose files were rewritten with equal rows."""

    name = "skip_rewrites"
    step = "decide"
    rule = "partitions whose added and removed fragments have as many rows and the same multiset hash of each column"
    reads_stored_state = True
    partitions: tuple[str, ...]
    """Partitions with both added and removed fragments."""

    def summary(self) -> str:
        """Return the number of partitions to compare, and the keys of up to five: `1 partition ('day=1')`."""
        return _names("partition", self.partitions)


@dataclass(frozen=True)
class MergePartitions(PlanStage):
    """The stage that merges fragment profiles into the profiles of partitions."""

    name = "merge_partitions"
    step = "reduce"
    reads_stored_state = True
    partitions: tuple[str, ...]
    """Keys of the partitions to merge, as planned before profiling."""
    total: int
    """Number of partitions of the snapshot."""
    changed_by: tuple[str, ...] = ()
    """Names of earlier stages that may add partitions (`resolve_auto_policies`) or remove some (`skip_rewrites`)."""

    def summary(self) -> str:
        """Return a text such as `1 partition ('day=1') of 7; skip rewrites may remove some`.

        It has the number of partitions to merge, the keys of up to five, and the number of all partitions. It ends with
        the possible effects of the stages in `changed_by`, here `skip_rewrites`. If all partitions are merged anyway,
        a stage that can only add partitions is left out.
        """
        effects = {SkipRewrites.name: "remove"}
        if len(self.partitions) < self.total:
            effects[ResolveAutoPolicies.name] = "add"
        changes = ", ".join(
            f"{name.replace('_', ' ')} may {effects[name]} some" for name in self.changed_by if name in effects
        )
        return f"{_names('partition', self.partitions)} of {self.total:,}{changes and f'; {changes}'}"

    def joined(self, next_lot: Self) -> Self:
        partitions = tuple(sorted({*self.partitions, *next_lot.partitions}))
        changed_by = tuple(dict.fromkeys([*self.changed_by, *next_lot.changed_by]))
        return replace(self, partitions=partitions, total=next_lot.total, changed_by=changed_by)


@dataclass(frozen=True)
class MergeTable(PlanStage):
    """The stage that merges partition profiles into the profile of the table."""

    name = "merge_table"
    step = "reduce"
    rule = "only if the profile of a partition, or the profile spec, is not that of the previous version"
    reads_stored_state = True

    def summary(self) -> str:
        """Return `the profiles of all partitions`."""
        return "the profiles of all partitions"


@dataclass(frozen=True)
class UpdateValueCounts(PlanStage):
    """The stage that updates the table's value counts by the added and removed fragments."""

    name = "update_value_counts"
    step = "reduce"
    rule = "rebuilt from all fragments if half of the table's rows, or more, were added or removed"
    reads_stored_state = True
    columns: tuple[str, ...]
    """The enumerated and fingerprinted columns. `resolve_auto_policies` may remove some."""

    def summary(self) -> str:
        """Return the number of columns with value counts, and the names of up to five.

        Example: `2 columns ('id', 'name')`.
        """
        return _names("column", self.columns)


@dataclass(frozen=True)
class CompactSegments(PlanStage):
    """The stage that copies the used profiles of wasteful files and of small files into new files.

    A file is wasteful if most of its profiles are unused.
    """

    name = "compact_segments"
    step = "reduce"
    rule = (
        "files of which less than half is in use, where they waste more than a quarter of what is in use; small files, "
        "where a partition has eight or more"
    )
    reads_stored_state = True

    def summary(self) -> str:
        """Return `multi-profile files`."""
        return "multi-profile files"


@dataclass(frozen=True)
class WriteIndexes(PlanStage):
    """The stage that updates the fragment index, the partition index, and the value filters.

    A value filter has short hashes of a column's values in one fragment.
    """

    name = "write_indexes"
    step = "reduce"
    reads_stored_state = True
    filtered_columns: tuple[str, ...]
    """Columns with value filters."""

    def summary(self) -> str:
        """Return the updated indexes.

        Example: `fragments, partition statistics, value filters of 2 columns ('id', 'name')`. At most five columns are
        named. Value filters are not mentioned if no column has them.
        """
        filters = f", value filters of {_names('column', self.filtered_columns)}" if self.filtered_columns else ""
        return f"fragments, partition statistics{filters}"


@dataclass(frozen=True)
class Publish(PlanStage):
    """The stage that publishes the version, and removes versions that expired."""

    name = "publish"
    step = "publish"
    version: int
    previous: int
    """Number of the previous version; 0 if there is none."""

    def summary(self) -> str:
        """Return the numbers of the version to publish and of the previous version, as text."""
        return f"version {self.version}" + (f", after version {self.previous}" if self.previous else "")


@dataclass(frozen=True)
class WriteExports(PlanStage):
    """The stage that writes the version to the targets of `exports`.

    The refresh succeeds even if a target fails.
    """

    name = "write_exports"
    step = "publish"
    rule = "the targets that do not have the version yet"
    targets: tuple[str, ...]
    """Names of the targets."""

    def summary(self) -> str:
        """Return the number of targets, and the names of up to five: `2 targets ('a', 'b')`."""
        return _names("target", self.targets)


def join_lots(lots: Sequence[Sequence[PlanStage]]) -> tuple[PlanStage, ...]:
    """Return the stages of several lots as one sequence, in which each kind of stage occurs once.

    A lot is a limited number of fragments that are processed together. A stage of the result describes the work in all
    lots. Stages have the order in which their kinds run.
    """
    order = PlanStage.__subclasses__()  # This module defines the kinds in the order in which they run.
    joined_stages: dict[type[PlanStage], PlanStage] = {}
    for stages in lots:
        for stage in stages:
            before = joined_stages.get(type(stage))
            joined_stages[type(stage)] = stage if before is None else before.joined(stage)
    return tuple(sorted(joined_stages.values(), key=lambda stage: order.index(type(stage))))


def stages_to_json(stages: Sequence[PlanStage]) -> list[dict[str, Any]]:
    """Return stages as they appear in `refresh --dry-run --json`."""
    documents = []
    for stage in stages:
        documents.append(stage.to_json())
        if isinstance(stage, DivideIntoLots):
            documents += stages_to_json(stage.stages)
    return documents


def stages_to_text(stages: Sequence[Mapping[str, Any]], *, with_rules: bool = False) -> list[str]:
    """Return one line for each stage, in the order of execution.

    Args:
        stages: The stages as `stages_to_json` returns them.
        with_rules: Whether a line also has the stage's rule, such as "the targets that do not have the version yet".
    """
    lines = [f"{at}. {stage['stage'].replace('_', ' ')}: {stage['summary']}" for at, stage in enumerate(stages, 1)]
    if with_rules:
        lines = [
            f"{line} ({stage['rule']})" if "rule" in stage else line for line, stage in zip(lines, stages, strict=True)
        ]
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _names(noun: str, names: Sequence[str]) -> str:
    names_text = ", ".join(map(repr, names[:_NAMES_SHOWN]))
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return _count(len(names), noun) + (f" ({names_text}{more})" if names else "")
