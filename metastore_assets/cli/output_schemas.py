"""The JSON schemas of the documents that commands print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from metastore_assets.cli.documents import (
    Changes,
    CheckResults,
    Clustering,
    Diff,
    FailedLocation,
    HistogramBin,
    HistoryRowDocument,
    PartitionFrequencyDocument,
    PartitionSummary,
    ProfiledTable,
    PrunedFiles,
    QuantileValue,
    RankOfValue,
    RowCountDocument,
    RowEstimate,
    StatisticLaws,
    StatisticPoint,
    SuggestedChecks,
    TableStatistics,
    TableSummary,
    ValueFrequencyDocument,
    VerificationDocument,
    VersionSummaryDocument,
)
from metastore_assets.cli.work_documents import (
    BackfillDocument,
    BackfillPlanDocument,
    Compaction,
    Diagnosis,
    Expiry,
    Exports,
    FailedTable,
    Purge,
    Refreshed,
    RefreshPlan,
    ServerStatus,
    StartedServer,
    StoppedServer,
    WrittenConfiguration,
    WrittenReport,
)

SCHEMA_VERSION = "2.0"
"""The version of all schemas. The first number rises if a key is removed, or changes its meaning or type. The second
number rises if a key is added."""
_DIALECT = "https://json-schema.org/draft/2020-12/schema"

DOCUMENTS: Mapping[str, TypeAdapter[Any]] = {
    "backfill": TypeAdapter(BackfillPlanDocument | BackfillDocument),
    "changes": TypeAdapter(Changes),
    "check": TypeAdapter(CheckResults | SuggestedChecks),
    "check-statistic": TypeAdapter(StatisticLaws),
    "clustering": TypeAdapter(Clustering),
    "compact": TypeAdapter(Compaction),
    "count": TypeAdapter(RowCountDocument),
    "diff": TypeAdapter(Diff),
    "doctor": TypeAdapter(Diagnosis),
    "estimate": TypeAdapter(RowEstimate),
    "expire": TypeAdapter(Expiry),
    "export": TypeAdapter(Exports),
    "histogram": TypeAdapter(list[HistogramBin]),
    "history": TypeAdapter(list[VersionSummaryDocument] | list[StatisticPoint] | list[HistoryRowDocument]),
    "init": TypeAdapter(WrittenConfiguration),
    "locate": TypeAdapter(list[PartitionFrequencyDocument]),
    "profile": TypeAdapter(ProfiledTable | FailedLocation),
    "prune": TypeAdapter(PrunedFiles),
    "purge": TypeAdapter(Purge),
    "quantile": TypeAdapter(list[QuantileValue]),
    "rank": TypeAdapter(RankOfValue),
    "refresh": TypeAdapter(Refreshed | RefreshPlan | FailedTable),
    "report": TypeAdapter(WrittenReport),
    "show": TypeAdapter(TableStatistics | list[PartitionSummary]),
    "spark-server start": TypeAdapter(StartedServer),
    "spark-server status": TypeAdapter(ServerStatus),
    "spark-server stop": TypeAdapter(StoppedServer),
    "sql": TypeAdapter(list[dict[str, Any]]),
    "tables": TypeAdapter(list[TableSummary]),
    "top": TypeAdapter(list[ValueFrequencyDocument]),
    "verify": TypeAdapter(VerificationDocument),
    "versions": TypeAdapter(list[VersionSummaryDocument]),
}
"""The model of one line of JSON that each command prints, by the command's name."""


def command_schema(command: str) -> dict[str, Any]:
    """Return the JSON schema of each line that a command prints with `--json`."""
    return {
        "$schema": _DIALECT,
        "$id": f"urn:metastore-assets:output:{SCHEMA_VERSION}:{command.replace(' ', '-')}",
        **DOCUMENTS[command].json_schema(),
    }


def all_schemas() -> dict[str, Any]:
    """Return one JSON schema document with the schemas of all commands, by the command's name.

    The document also has the version of the schemas.
    """
    keys, definitions = TypeAdapter.json_schemas([(name, "validation", adapter) for name, adapter in DOCUMENTS.items()])
    return {
        "$schema": _DIALECT,
        "$id": f"urn:metastore-assets:output:{SCHEMA_VERSION}",
        "version": SCHEMA_VERSION,
        "commands": {name: keys[name, "validation"] for name in DOCUMENTS},
        "$defs": definitions["$defs"],
    }
