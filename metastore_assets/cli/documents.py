"""Models of the JSON documents that queries, comparisons and checks print with `--json`.

`work_documents` has the models of the other commands. `output_schemas` generates JSON schemas from all models.

A version is the published statistics of a table at one snapshot. A fragment is a data file with the deletes that apply
to it. A profile is the statistics of a fragment, a partition or the table. The value counts of a column are its
distinct values with their frequencies.

Commands do not use the models. Tests validate the output of every command with them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from metastore_assets.checks.base import Status as CheckStatus
from metastore_assets.statistics.declaration import Guarantee

Integer = int | str
"""A whole number; a text if its absolute value is beyond 2^53."""
Number = float | str | None
"""A number; a text for NaN, infinities and decimals; null if it is unknown."""
Value = Any
"""A value of a column, in the form that docs/reference/output.md lists."""
SuggestedCheck = str | dict[str, Any]
"""A check as in the configuration: its kind, or its kind as a key with the settings, and keys such as `severity`."""


class Document(BaseModel):
    """A JSON object that has no other keys than the model.

    Keys with a default may be absent.
    """

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, json_schema_extra=lambda schema: _remove_defaults(schema)
    )


class VersionSummaryDocument(Document):
    """A version of a table."""

    version: int
    snapshot: str
    """The id of the table's snapshot that the version describes."""
    committed_at: str | None
    """When the snapshot was committed; null if the table's format does not record it."""
    published_at: str
    row_count: Integer
    bytes: Integer
    """The size of the table's files."""
    partitions: int
    fragments: int


class TableSummary(Document):
    """A configured table and its newest version.

    Without a version, the values from `version` on are null.
    """

    table: str
    uri: str
    format: str | None
    catalog: str | None
    dropped: str | None
    """Why the table counts as dropped from its catalog; null if it exists."""
    error: str | None
    """Why the newest version cannot be read, for example because it is damaged; null if it can or there is none."""
    version: int | None
    snapshot: str | None
    committed_at: str | None
    published_at: str | None
    row_count: Integer | None
    bytes: Integer | None
    partitions: int | None
    fragments: int | None


class Percentile(Document):
    """A percentile of a column."""

    fraction: float
    value: Value


class UserStatisticDocument(Document):
    """The result of a custom statistic."""

    value: Value
    guarantee: Guarantee
    reason: str | None


class StatisticsDocument(Document):
    """The statistics of a column.

    A statistic is null if it is unknown or not defined for the type.
    """

    column: str
    """The dotted path of the column."""
    type: str
    value_count: Integer
    """The number of values that are not null."""
    null_count: Integer
    nan_count: Integer | None
    minimum: Value
    maximum: Value
    minimum_exact: bool
    """Whether `minimum` is the least value. If not, it is a lower bound, or null because it is unknown."""
    maximum_exact: bool
    """Whether `maximum` is the greatest value. If not, it is an upper bound, or null because it is unknown."""
    distinct_count: Integer | None
    distinct_count_guarantee: Guarantee
    duplicate_count: Integer | None
    """The number of distinct values that occur more than once."""
    sum: Value
    mean: Number
    standard_deviation: Number
    skewness: Number
    kurtosis: Number
    minimum_length: Integer | None
    maximum_length: Integer | None
    mean_length: Number
    true_count: Integer | None
    total_bytes: Integer | None
    percentiles: list[Percentile] | None
    percentiles_guarantee: Guarantee
    frequencies: str
    """Which value counts are stored, such as `enumerated`."""
    reason: str | None
    """Why the column has only counts."""
    user_defined: dict[str, UserStatisticDocument]


class PolicyDecision(Document):
    """How the values of a column with `frequencies: auto` or `repeated` are stored, and why."""

    frequencies: str
    reason: str
    since: int
    """The number of the version that made the decision."""


class BuiltValueCountsDocument(Document):
    """How the value counts of a column were last built from profiles."""

    algorithm: str
    where: str
    distinct: int | None
    profiles: int


class ColumnDocument(StatisticsDocument):
    """The statistics of a column in the answer of `show` and `profile`."""

    singleton_count: Integer | None
    """The number of values that occur once; null unless all values are counted."""
    entropy: Number
    """The entropy in bits; null unless all values are counted."""
    decision: PolicyDecision | None
    built: BuiltValueCountsDocument | None


class TableStatistics(Document):
    """The answer of `show`."""

    table: str
    version: int
    snapshot: str
    current: bool | None
    """Whether the version describes the current snapshot of the table, under the configured policies; null if that is
    unknown."""
    partition: str = Field(default="")
    """The key of the partition; absent for the whole table."""
    where: str = Field(default="")
    """The predicate; absent for all rows."""
    row_count: Integer
    columns: list[ColumnDocument]
    format: str


class PartitionSummary(Document):
    """A partition in the answer of `show --partitions`."""

    partition: str
    row_count: Integer
    bytes: Integer
    fragments: int
    version: int
    """The version that last changed the partition."""


class ProfiledTable(Document):
    """The answer of `profile`."""

    uri: str
    snapshot: str
    current: bool | None
    row_count: Integer
    columns: list[ColumnDocument]
    format: str


class FailedLocation(Document):
    """A location that could not be profiled."""

    uri: str
    error: str


class ValueFrequencyDocument(Document):
    """A value and how often it occurs."""

    value: Value
    frequency: Integer


class HistogramBin(Document):
    """A bin of a histogram."""

    minimum: Value
    maximum: Value
    frequency: Integer


class QuantileValue(Document):
    """A quantile of a column."""

    q: float
    value: Value
    guarantee: Guarantee


class RankOfValue(Document):
    """The rank of a value."""

    rank: Integer
    """The number of values that are less."""
    frequency: Integer | None
    row_count: Integer
    guarantee: Guarantee


class PartitionFrequencyDocument(Document):
    """A partition and the frequency of a value in it."""

    partition: str
    frequency: Integer


class UserValue(Document):
    """The value of a custom statistic in a version."""

    value: Value
    guarantee: Guarantee


class HistoryRowDocument(StatisticsDocument):
    """The statistics of a column in a version, in the answer of `history NAME COLUMN`."""

    version: int
    snapshot: str
    committed_at: str | None
    published_at: str
    row_count: Integer
    bytes: Integer
    partitions: int
    fragments: int
    field_id: str
    """Identifies the column across renames."""
    user_defined: dict[str, UserValue]  # type: ignore[assignment]


class StatisticPoint(Document):
    """One statistic in a version, in the answer of `history --statistic`."""

    version: int
    snapshot: str
    published_at: str
    value: Value
    guarantee: Guarantee


class Eliminations(Document):
    """The number of fragments that one conjunct of the predicate rules out by one statistic."""

    conjunct: str
    statistic: str
    fragments: int
    bytes: Integer


class EliminatedFragmentDocument(Document):
    """A fragment that the query need not read, with the conjunct and the statistic that rule it out."""

    path: str
    conjunct: str
    statistic: str
    value: str | None


class FilesAndBytes(Document):
    """The numbers of files and bytes that were read or written."""

    files: int
    bytes: Integer


class PrunedFiles(Document):
    """The answer of `prune`."""

    table: str
    version: int
    snapshot: str
    predicate: str
    limit: int = Field(default=0)
    """The requested number of rows; absent without `--limit`."""
    fragments: list[str]
    """The paths of the files to read."""
    fragments_total: int
    rows_lower: int
    rows_upper: int
    bytes: Integer
    bytes_total: Integer
    explanation: list[Eliminations]
    read: FilesAndBytes
    """The files of the Metastore that the command read."""
    eliminated: list[EliminatedFragmentDocument] = Field(default=[])
    """The fragments that need not be read; absent without `--explain`."""


class RowEstimate(Document):
    """The answer of `estimate`."""

    lower: int
    estimate: int
    upper: int
    guarantee: Guarantee
    assumes: str | None
    """`independence` if conditions on different columns are assumed to be independent; otherwise null."""


class RowCountDocument(Document):
    """The answer of `count`."""

    count: int
    fragments_read: int
    bytes_read: int
    fragments_total: int
    version: int
    snapshot: str


class ClusteredColumn(Document):
    """The clustering of a column: how many files a query that filters by the column can skip."""

    column: str
    depth: float | None
    """The average number of files that may contain a value."""
    deepest: int | None
    skipped: float | None
    """The share of files that a query for one value skips."""
    possible_depth: float | None
    verdict: str


class Clustering(Document):
    """The answer of `clustering`."""

    table: str
    version: int
    snapshot: str
    fragments: int
    columns: list[ClusteredColumn]


class VersionReferenceDocument(Document):
    """A version of a table."""

    version: int
    snapshot: str


class ChangedValue(Document):
    """A value whose frequency changed."""

    change: Literal["add", "update", "delete"]
    value: Value
    before: Integer | None
    after: Integer | None


class ChangedColumn(Document):
    """The changed values of a column.

    If they are unknown, `counts` and `changes` are null, and `reason` says why.
    """

    column: str
    type: str
    counts: dict[Literal["add", "update", "delete"], int] | None
    reason: str | None
    changes: list[ChangedValue] | None


class Changes(Document):
    """The answer of `changes`."""

    table: str
    before: VersionReferenceDocument
    after: VersionReferenceDocument
    columns: list[ChangedColumn]


class ComparedVersion(VersionReferenceDocument):
    """One of the two compared versions."""

    table: str


class FromTo(Document):
    """A text before and after a change."""

    before: str = Field(alias="from")
    after: str = Field(alias="to")


class RetypedColumn(FromTo):
    """A column whose type changed."""

    column: str


class SchemaChanges(Document):
    """The changes of a schema."""

    added: list[str]
    removed: list[str]
    renamed: list[FromTo]
    retyped: list[RetypedColumn]


class PartitionChanges(Document):
    """The numbers of changed partitions."""

    added: int
    removed: int
    changed: int
    same: int


class ComparedColumnDocument(Document):
    """A column's difference between two versions."""

    column: str
    change: Literal["added", "removed", "changed", "same"]
    stability_index: Number
    kolmogorov_smirnov: Number
    jensen_shannon: Number
    over: str | None
    """What was compared, such as `812 bins` or `5 values`; null without distances."""
    guarantee: Guarantee
    reason: str | None
    before: StatisticsDocument | None
    after: StatisticsDocument | None


class Diff(Document):
    """The answer of `diff`."""

    before: ComparedVersion = Field(alias="from")
    after: ComparedVersion = Field(alias="to")
    row_count: list[Integer]
    bytes: list[Integer]
    schema_changes: SchemaChanges = Field(alias="schema")
    partitions: PartitionChanges | None
    columns: list[ComparedColumnDocument]


class CheckedPartition(Document):
    """A partition that did not pass a check."""

    partition: str
    status: CheckStatus
    observed: str


class CheckedPartitions(Document):
    """The number of partitions by status of a check, and up to 20 that did not pass, failed ones first."""

    passed: int
    failed: int
    unknown: int
    first: list[CheckedPartition]


Measure = Literal[
    "age_seconds", "change", "distance", "distinct", "failed", "files", "matching_share", "maximum", "maximum_length",
    "minimum", "minimum_length", "null_share", "nulls", "partitions", "passed", "rows", "unknown", "values",
]  # fmt: skip


class ColumnChecks(Document):
    """Suggested checks of a column."""

    checks: list[SuggestedCheck]


class CheckResultDocument(Document):
    """The result of one check."""

    check: str
    kind: str
    column: str | None
    severity: Literal["error", "warn"]
    status: CheckStatus
    expected: str
    observed: str
    guarantee: str | None
    advice: str | None
    measures: dict[Measure, Number]
    """The numbers that the check compared. Their names depend on the kind of the check."""
    partitions: CheckedPartitions | None = Field(default=None)
    """Absent if the check was not evaluated by partition."""


class CheckResults(Document):
    """The answer of `check`."""

    table: str
    version: int
    snapshot: str
    status: Literal["passed", "failed"]
    passed: int
    failed: int
    unknown: int
    checks: list[CheckResultDocument]


class SuggestedChecks(Document):
    """The answer of `check --suggest`."""

    table: str
    version: int
    checks: list[SuggestedCheck]
    columns: dict[str, ColumnChecks]
    yaml: str


class WrongNumber(Document):
    """A stored number that differs from the number computed from the files."""

    level: str
    name: str
    column: str | None
    statistic: str
    stored: str
    computed: str


class UnreadableFile(Document):
    """A file that could not be read."""

    path: str
    message: str


class VerificationDocument(Document):
    """The answer of `verify`."""

    table: str
    version: int
    fragments: int
    partitions: int
    complete: bool
    """Whether the table's profile was compared too."""
    skipped_partitions: int
    differences: list[WrongNumber]
    unreadable: list[UnreadableFile]


class LawViolation(Document):
    """A law that a custom statistic violates, with the data."""

    law: str
    type_class: str
    data: list[str]
    """The values of each set of rows, as text."""
    expected: str
    observed: str


class StatisticLaws(Document):
    """The answer of `check-statistic`."""

    statistic: str
    name: str
    revision: str
    route: str
    type_classes: list[str]
    holds: bool
    counterexample: LawViolation | None


def _remove_defaults(schema: dict[str, Any]) -> None:
    """Remove the defaults from a model's JSON schema, because they only mark keys that may be absent."""
    for key in schema.get("properties", {}).values():
        key.pop("default", None)
