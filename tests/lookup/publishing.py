"""Functions that profile Arrow tables in this process and publish them as versions.

A profile is the statistics of the columns in a set of rows, such as a file, a partition or the table. A version has the
statistics of one snapshot of the table. Value counts are the distinct values of a column with their frequencies. The
policy of a column decides which of its statistics and values are stored. The root is the folder with all stored state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from metastore_assets.config import TableConfig
from metastore_assets.lookup import Table
from metastore_assets.metastore import open_scanner
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.fragment_index import plan_fragment_index
from metastore_assets.pipeline.partition_index import plan_partition_index
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.pipeline.profiles.files import ProfileWriter
from metastore_assets.pipeline.value_counts.update import enumerated_classes
from metastore_assets.produce import Delta, FlowState
from metastore_assets.statistics.frequencies import Frequencies
from metastore_assets.statistics.profile import ColumnProfile, profile_field
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import FragmentEntry, PartitionEntry, ProfileFiles, ValueCountFiles, Version
from metastore_assets.store.versions import VersionStore
from metastore_assets.value_counts import TableValueCounts, write_value_counts
from metastore_assets.value_counts.graph import delta_name, rows_of
from metastore_assets.values.columns import columns_by_field


def profiles_of(config: TableConfig, rows: pa.Table) -> list[ColumnProfile]:
    """Return the profiles of all columns of `rows`, under the policies of `config`."""
    return [
        profile
        for field, array, columns in zip(rows.schema, rows.columns, columns_by_field(rows.schema), strict=True)
        for profile in profile_field(field, array.chunks, config.effective_policy, columns=columns)
    ]


def write_profile(
    store: ObjectStore, config: TableConfig, rows: pa.Table, profiles: Iterable[ColumnProfile] | None = None
) -> ProfileFiles:
    """Write one profile as the pipeline does, and return its files.

    Column profiles are computed unless they are given.
    """
    spec = table_profile_spec(rows.schema, config)
    with ProfileWriter(store, "partitions", spec, rows.num_rows) as writer:
        for profile in profiles_of(config, rows) if profiles is None else profiles:
            writer.add(profile)
    return writer.files


def _no_spark() -> Any:
    raise AssertionError("this is little work")


def write_table_value_counts(
    store: ObjectStore,
    config: TableConfig,
    schema: pa.Schema,
    profiles: Sequence[ColumnProfile],
    partitions: Mapping[str, Sequence[ColumnProfile]],
) -> ValueCountFiles | None:
    """Write the value counts of a table.

    For columns with the policy `by_partition: on`, also write the value counts of each partition. `profiles` are the
    table's column profiles, and `partitions` those of each partition by key. Return the written files, or None if no
    column has value counts.
    """
    columns = enumerated_classes(table_profile_spec(schema, config))
    by_partition = {
        column: name for column, name in columns.items() if config.effective_policy(column).by_partition == "on"
    }
    added_deltas: dict[str, list[Delta]] = {}
    for partition, part in [(None, profiles), *partitions.items()]:
        enumerated_columns = columns if partition is None else by_partition
        for field_id, column_counts in _value_counts(part):
            if field_id in enumerated_columns:
                arrays = [pa.array([field_id] * len(column_counts)), column_counts.values, column_counts.counts]
                if partition is not None:
                    arrays.insert(2, pa.array([partition] * len(column_counts)))
                is_one = partition is not None
                table = pa.table(arrays, schema=rows_of(enumerated_columns[field_id], by_partition=is_one).schema)
                added_deltas.setdefault(delta_name(enumerated_columns[field_id], by_partition=is_one), []).append(
                    Delta(table)
                )
    lists = TableValueCounts(columns, by_partition=by_partition)
    return write_value_counts(store, replace(lists, flow=lists.dataflow(store).step(FlowState(), added_deltas)))


def _value_counts(profiles: Iterable[ColumnProfile]) -> Iterator[tuple[str, Frequencies]]:
    for profile in profiles:
        if profile.frequencies is not None and len(profile.frequencies):
            yield profile.statistics.field_id, profile.frequencies


def publish(
    store: ObjectStore,
    rows: pa.Table,
    *,
    name: str = "orders",
    columns: Mapping[str, Any] | None = None,
    partitions: Mapping[str, pa.Table] | None = None,
) -> Table:
    """Publish the rows as the next version of a table, and return the opened version.

    Args:
        store: The root.
        rows: All rows of the table.
        name: The name of the table.
        columns: The policies of columns, as in the configuration.
        partitions: The rows of each partition, by key. By default, all rows are in one partition `all`.
    """
    config = TableConfig.model_validate({"name": name, "uri": "nowhere", "columns": columns or {}})
    versions = VersionStore(store, name)
    number = max(versions.numbers(), default=0) + 1
    full = profiles_of(config, rows)
    parts = {key: profiles_of(config, part) for key, part in (partitions or {}).items()}

    def entry(key: str, rows: pa.Table, profiles: Sequence[ColumnProfile]) -> PartitionEntry:
        profile_files = write_profile(versions.objects, config, rows, profiles)
        return PartitionEntry(key, key, rows.num_rows, rows.nbytes, 1, profile_files, number)

    entries = [entry(key, part, parts[key]) for key, part in (partitions or {}).items()] or [entry("all", rows, full)]
    files = write_profile(versions.objects, config, rows, full)
    fragments = [
        FragmentEntry(part.key, part.key, f"{part.key}.parquet", part.bytes, part.row_count, "spec", (), part.files)
        for part in entries
    ]
    engine, objects, columns = Engine(_no_spark, "auto"), versions.objects, len(rows.schema)
    version = Version(
        number=number,
        table=name,
        format="delta",
        snapshot=f"snapshot {number}",
        committed_at=None,
        published_at=datetime.now(UTC),
        schema=rows.schema,
        partition_columns=(),
        row_count=rows.num_rows,
        bytes=rows.nbytes,
        content_id=str(number),
        files=files,
        value_counts=write_table_value_counts(versions.objects, config, rows.schema, full, parts),
        code_version="0",
        spec_id="spec",
        specs={},
        fragments=(),
        partitions=entries,
        index=plan_fragment_index(engine, objects, columns, None, fragments).write(True),
        partition_index=plan_partition_index(engine, objects, columns, None, entries).write(True),
    )
    versions.publish(version)
    return Table(versions.objects, versions.read(number), open_scanner)
