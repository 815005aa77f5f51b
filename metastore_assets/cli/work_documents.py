"""Models of the JSON documents of commands that refresh, maintain or set up tables.

The commands print them with `--json`. A version is the published statistics of a table at one snapshot. A fragment is a
data file with the deletes that apply to it. A profile is the statistics of a fragment, a partition or the table. A
stage is a step of a refresh, such as the profiling of fragments.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from metastore_assets.cli.documents import Document, FilesAndBytes, Integer


class Compaction(Document):
    """The answer of `compact`."""

    table: str
    version: int
    published: bool
    files_before: int
    files: int
    frequencies: str | None
    """The location of the file of value counts."""
    ranks: str | None


class Expiry(Document):
    """The answer of `expire`."""

    table: str
    versions: int
    files: int
    bytes: Integer


class ExportedTarget(Document):
    """The state of one target of `exports`."""

    target: str
    """The name under `exports`."""
    kind: str
    state: Literal["written", "current", "behind", "absent", "removed", "failed"]
    """`written`: this command wrote the version. `current`: the target has it. `behind`: it has another version, or was
    written with other options. `absent`: this package wrote nothing to it. `removed`: this command removed it.
    `failed`: `error` says why."""
    version: int | None
    """The version that the target has."""
    snapshot: str | None
    bytes: Integer | None
    """The bytes that this command wrote; null if it wrote nothing."""
    columns: int | None
    """The number of columns that this command wrote; null if it wrote nothing."""
    notes: list[str]
    """What was left out, and why."""
    error: str | None
    seconds: float


class Purge(Expiry):
    """The answer of `purge`."""

    published: int
    """The number of the version that the purge published."""
    unfinished: int
    """The number of removed files that no version referenced."""
    outdated: int
    """The number of remaining profiles with columns that the table no longer has."""
    not_reached: list[str]
    """Places outside of the root that may contain values."""
    exports: list[ExportedTarget]


class FragmentCounts(Document):
    """The numbers of fragments of a refresh."""

    added: int
    removed: int
    unchanged: int
    profiled: int


class PartitionCounts(Document):
    """The numbers of partitions of a refresh."""

    changed: int
    removed: int
    total: int


class ValueCountChangesDocument(Document):
    """The numbers of values that a refresh added, removed, or changed in frequency."""

    added: int
    removed: int
    changed: int


class TypeChangeDocument(Document):
    """A column whose type differs from its type in the previous version."""

    column: str
    before: str
    now: str
    reason: str | None


class StepCosts(Document):
    """The files and bytes that a step of a refresh read and wrote."""

    read: FilesAndBytes
    written: FilesAndBytes


class Exports(Document):
    """The answer of `export`."""

    table: str
    version: int
    """The newest version of the table."""
    snapshot: str
    targets: list[ExportedTarget]
    read_again: dict[str, Any] = Field(default_factory=dict)
    """With `--dry-run`: what the next refresh reads again, by column."""
    bytes_to_read: Integer = Field(default=0)
    """With `--dry-run`: the bytes that the next refresh reads."""


class Refreshed(Document):
    """The answer of `refresh` for one table."""

    table: str
    version: int
    snapshot: str
    published: bool
    fragments: FragmentCounts
    partitions: PartitionCounts
    value_counts: ValueCountChangesDocument | None
    dropped_columns: list[str]
    type_changes: list[TypeChangeDocument]
    steps: dict[str, StepCosts]
    exports: list[ExportedTarget]
    seconds: float


class StageDocument(Document):
    """A stage of a plan.

    Each stage has the keys `stage` and `summary`. The other keys describe the work of the stage, and may be absent.
    """

    stage: str
    summary: str
    rule: str = Field(default="")
    """The rule by which the refresh will decide about work that is unknown before profiling."""
    fragments: int = Field(default=0)
    lots: int = Field(default=0)
    """For the first version of a large table: the number of lots to compute. A lot is a limited number of fragments."""
    bytes: int = Field(default=0)
    reused: int = Field(default=0)
    """The number of fragments with a stored profile, which are not read."""
    columns: list[str] = Field(default=[])
    filtered_columns: list[str] = Field(default=[])
    """Columns for which hashes of the values are stored, to skip fragments that lack a value."""
    partitions: list[str] = Field(default=[])
    total: int = Field(default=0)
    """The number of partitions of the snapshot."""
    changed_by: list[str] = Field(default=[])
    """The names of earlier stages that may still add partitions to this stage or remove some."""
    version: int = Field(default=0)
    previous: int = Field(default=0)
    """The number of the previous version; 0 if there is none."""
    targets: list[str] = Field(default=[])
    """The names of the targets of `exports`."""


class RefreshPlan(Document):
    """The answer of `refresh --dry-run` for one table."""

    table: str
    version: int
    snapshot: str
    published: bool
    """Whether a version would be published."""
    dry_run: Literal[True]
    full_comparison: str | None
    """Why all fragments were compared; null if the commits show what changed."""
    fragments: FragmentCounts
    partitions: PartitionCounts
    changed_partitions: list[str]
    removed_partitions: list[str]
    type_changes: list[TypeChangeDocument]
    read_again: dict[str, dict[str, int]]
    """The number of fragments to read again, by column and what their profiles lack: `{"x": {"frequencies": 1}}`."""
    may_read_again: dict[str, int]
    """For each column, the number of fragments that may have to be read to find its repeated values."""
    bytes_to_read: Integer
    stages: list[StageDocument]


class FailedTable(Document):
    """A table that could not be refreshed."""

    table: str
    error: str


class BackfillDocument(Document):
    """The answer of `backfill`."""

    table: str
    partitions: int
    chunks: int
    versions: list[int]
    fragments: int
    bytes: Integer
    seconds: float | None
    done: bool
    failed_checks: list[str]
    error: str = Field(default="")
    """The error that ended the backfill; absent if there was none."""


class UnselectedWork(Document):
    """The work in partitions that were not selected."""

    partitions: int
    fragments: int
    bytes: Integer


class BackfillPlanDocument(BackfillDocument):
    """The answer of `backfill --dry-run`."""

    dry_run: Literal[True]
    version: int | None
    snapshot: str
    mode: Literal["outdated", "missing", "stale", "all"]
    selected: int
    total: int
    missing: int
    stale: int
    again: int
    unselected: UnselectedWork
    publishes: bool
    continues: int
    keys: list[str]


class WrittenReport(Document):
    """The answer of `report`."""

    table: str
    version: int
    file: str
    bytes: int


class SuggestedPolicy(Document):
    """A suggested policy of a column."""

    column: str
    policy: str
    reason: str
    active: bool
    """Whether it takes effect. If not, it is written as a comment."""


class ConfiguredTableDocument(Document):
    """A table in a new configuration."""

    table: str
    uri: str
    format: str
    columns: int
    fragments: int
    bytes: Integer
    partition_columns: list[str]
    profiled: bool
    suggestions: list[SuggestedPolicy]


class UnreadableTable(Document):
    """A table or view that a catalog lists and that cannot be read."""

    table: str
    reason: str


class ConfiguredDatabase(Document):
    """A database in a new configuration."""

    catalog: str
    database: str
    tables: list[str]
    """The names of its tables today. Tables that are created later are included, too."""
    skipped: list[UnreadableTable]


class WrittenConfiguration(Document):
    """The answer of `init`."""

    file: str
    root: str
    tables: list[ConfiguredTableDocument]
    databases: list[ConfiguredDatabase]


class FindingDocument(Document):
    """A finding of `doctor` about one subject."""

    subject: str
    status: Literal["ok", "warning", "failed", "skipped"]
    message: str
    advice: str | None


class Diagnosis(Document):
    """The answer of `doctor`."""

    status: Literal["ok", "failed"]
    ok: int
    warning: int
    failed: int
    skipped: int
    findings: list[FindingDocument]


class StoppedServer(Document):
    """The answer of `spark-server stop`."""

    stopped: bool


class ServerStatus(Document):
    """The answer of `spark-server status`.

    If no server runs, it has only the key `running`.
    """

    running: bool
    url: str = Field(default="")
    process: int = Field(default=0)
    logs: str = Field(default="")


class StartedServer(Document):
    """The answer of `spark-server start`."""

    url: str
    process: int
    logs: str
    started: bool
