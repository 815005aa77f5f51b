"""The policies under which a version was made, compared with the configured ones.

This is a separate module, because commands that only show statistics import it without the rest of the pipeline. A
version is the published statistics of a table at one snapshot. A policy says which statistics of a column are stored.
An `auto` or `repeated` policy is resolved to a mode, such as `enumerated`: all distinct values are stored with their
frequencies.
"""

from __future__ import annotations

import pyarrow as pa

from metastore_assets.config import CardinalityMode, MetastoreConfig, TableConfig
from metastore_assets.formats.base import SnapshotReference
from metastore_assets.pipeline.hidden_values import column_paths, has_hidden_key, with_hidden_key
from metastore_assets.pipeline.profile_spec import table_profile_spec
from metastore_assets.store.version import Version


def describes(version: Version, snapshot: SnapshotReference, table: TableConfig) -> bool:
    """Return whether a version was made from this snapshot, and under the configured policies.

    Args:
        version: The version.
        snapshot: The snapshot.
        table: The configured policies, with the key that hashes hidden values.
    """
    return snapshot == SnapshotReference(version.snapshot, version.committed_at) and matches_policies(table, version)


def matches_policies(table: TableConfig, version: Version) -> bool:
    """Return whether a version was made under the configured policies, from the configured partitions.

    Args:
        table: The configured policies, with the key that hashes hidden values.
        version: The version.
    """
    if set(unknown_columns(version.schema, table)) - set(version.dropped_columns):
        return False  # Planning finds out whether the name is misspelt, or of a column that was dropped.
    return table_profile_spec(version.schema, table, recorded_resolutions(version, table)).id == version.spec_id


def has_configured_policies(config: MetastoreConfig, table: TableConfig, version: Version) -> bool:
    """Return whether a version was made under the configured policies.

    If values are hidden and the key that hashes them is not available, policies cannot be compared. Then the result is
    true.

    Args:
        config: The configuration.
        table: The table, without the key.
        version: The version.
    """
    if table.hides_values and not has_hidden_key(config):
        return True
    return matches_policies(with_hidden_key(config, table), version)


def recorded_resolutions(version: Version, table: TableConfig) -> dict[str, CardinalityMode]:
    """Return {field id: mode} of the columns of a version whose policy is `auto` or `repeated`.

    The mode of a column without a recorded mode is `enumerated`.
    """
    field_ids = table_profile_spec(version.schema, table).unresolved_ids
    return {
        field_id: version.decisions[field_id].frequencies if field_id in version.decisions else "enumerated"
        for field_id in field_ids
    }


def unknown_columns(schema: pa.Schema, table: TableConfig) -> list[str]:
    """Return the columns that a policy names and the schema does not have."""
    return table.unknown_policy_columns(set(column_paths(schema)))
