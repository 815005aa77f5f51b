"""Hidden columns: the key that hashes their values, and checks that nothing reveals the values.

A renamed column, a partition key or a derived column could reveal them.

A profile is the statistics of a data file, a partition or the table, and a profile spec says which statistics it has. A
hidden column has the policy `values: hidden`: new versions have no values of it. A version is the published statistics
of a table at one snapshot.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Sequence

import pyarrow as pa

from metastore_assets.config import HIDDEN_KEY_MIN_LENGTH, MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, CorruptionError, ObjectExistsError, ObjectNotFoundError, StoreError
from metastore_assets.formats.base import DerivedColumn, SnapshotMetadata
from metastore_assets.messages import join_names
from metastore_assets.pipeline.profile_spec import ProfileSpec, field_identity
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.columns import Column, schema_columns

KEY_VARIABLE = "METASTORE_HIDDEN_KEY"
KEY_FILE = "hidden-values.key"
"""Path of the generated key, below the Metastore's root. It is used unless a key is configured."""
_KEY = re.compile(rb"[0-9a-f]{64}\n")


def with_hidden_key(config: MetastoreConfig, table: TableConfig, *, create: bool = False) -> TableConfig:
    """Return the table with the key that hashes its hidden values.

    A table without hidden columns gets none.

    The key is `$METASTORE_HIDDEN_KEY`, else `hidden_key` of the configuration, else the content of `KEY_FILE`.

    Args:
        config: The configuration, with the root folder that contains `KEY_FILE`.
        table: The table.
        create: Whether to write a new `KEY_FILE` if there is no key. If false, a random key is used, but not stored.

    Raises:
        ConfigError: The key is too short.
        CorruptionError: `KEY_FILE` contains no key.
        StoreError: `KEY_FILE` cannot be read or written.
    """
    if not table.hides_values:
        return table
    text = _configured_key(config)
    if text is None:
        return table.with_hidden_key(_stored_key(ObjectStore(config.root, config.storage_options), create=create))
    if len(text) < HIDDEN_KEY_MIN_LENGTH:
        raise ConfigError(
            f"{KEY_VARIABLE} has {len(text)} characters: a key has at least {HIDDEN_KEY_MIN_LENGTH}, drawn at random"
        )
    return table.with_hidden_key(hashlib.blake2b(text.encode(), digest_size=32, person=b"metastore-hidden").digest())


def has_hidden_key(config: MetastoreConfig) -> bool:
    """Return whether this user has the key that hashes hidden values.

    The key is configured, or stored in a file that this user can read.
    """
    if _configured_key(config) is not None:
        return True
    try:
        ObjectStore(config.root, config.storage_options).read(KEY_FILE)
    except StoreError:
        return False
    return True


def _configured_key(config: MetastoreConfig) -> str | None:
    return os.environ.get(KEY_VARIABLE) or (config.hidden_key.get_secret_value() if config.hidden_key else None)


def _stored_key(root: ObjectStore, *, create: bool) -> bytes:
    """Return the key in `KEY_FILE`, or a random key if there is no file.

    `create` writes the random key to the file.

    Raises:
        CorruptionError: The file contains no key.
    """
    for _ in range(2):
        try:
            data = root.read(KEY_FILE)
        except ObjectNotFoundError:
            data = f"{secrets.token_hex(32)}\n".encode()
            if create:
                try:
                    root.write(KEY_FILE, data, create=True, private=True)
                except ObjectExistsError:
                    continue  # Another refresh was first.
        if not _KEY.fullmatch(data):
            break
        return bytes.fromhex(data.decode())
    raise CorruptionError(
        f"{root.uri(KEY_FILE)} holds no key. Restore the file; or remove it: the next refresh then creates another key "
        "and reads all hidden columns again"
    )


def check_hidden_not_renamed(table: TableConfig, before: pa.Schema, now: pa.Schema) -> None:
    """Raise ConfigError if a hidden column may have been renamed, so that its values would be shown.

    The error is raised if the snapshot lacks a hidden column of the published version, and has a new column whose
    values are shown. A new column does not count if its own entry under `columns` sets `values`. A column is also new
    if the published version has its name with another field id.

    Args:
        table: The table.
        before: The schema of the published version.
        now: The schema of the snapshot.
    """
    ids_before, ids = _ids_by_path(before), _ids_by_path(now)
    removed_paths = [
        path
        for path, policy in sorted(table.columns.items())
        if path != "default" and policy.values == "hidden" and path in ids_before and path not in ids
    ]
    new_paths = [
        path
        for path, field_id in ids.items()
        if ids_before.get(path) != field_id
        and table.effective_policy(path).values == "shown"
        and not (path in table.columns and "values" in table.columns[path].model_fields_set)
    ]
    if removed_paths and new_paths:
        raise ConfigError(
            f"table {table.name!r}: columns.{removed_paths[0]} hides the values of a column that the table no longer "
            f"has, and has new columns, which would show theirs: {join_names(new_paths)}. If one of them is the same "
            "column under another name, name the policy after it; else remove the policy from the configuration, or "
            "set `values: shown` for the new columns"
        )


def _ids_by_path(schema: pa.Schema) -> dict[str, str]:
    """Return the field id of each column and nested field by its path, in table order."""
    return {column.path: column.field_id for column in schema_columns(schema)}


def check_hidden_not_derived(table: TableConfig, spec: ProfileSpec, snapshot: SnapshotMetadata) -> None:
    """Raise ConfigError if partition keys or other columns reveal the values of a hidden column.

    Args:
        table: The table.
        spec: The profile spec, with the policies of all columns.
        snapshot: The snapshot, with the partition columns and the columns that are computed from others.
    """
    if not table.hides_values:
        return
    hidden_columns = [column for column, policy in spec.columns if policy.values == "hidden"]
    derived_partitions = {
        derived_column.name for derived_column in snapshot.derived if derived_column.is_partition_field
    }
    partitioning = {field_identity(field) for field in snapshot.schema if field.name in snapshot.partition_columns}
    for column in hidden_columns:
        is_partition = spec.top_level_ids[column.field_id] in partitioning or column.path in snapshot.partition_columns
        if is_partition and column.path not in derived_partitions:
            raise ConfigError(
                f"table {table.name!r}: columns.{column.path} cannot be hidden: the table is partitioned by it, so "
                "that its values are the keys of partitions, and in the names of the table's own files"
            )
    for derived_column in snapshot.derived:
        if not derived_column.is_partition_field and derived_column.name in {column.path for column in hidden_columns}:
            continue
        if (source := _hidden_source(table, spec, hidden_columns, derived_column)) is None:
            continue
        raise ConfigError(
            f"table {table.name!r}: columns.{source} cannot be hidden: the table is partitioned by "
            f"{derived_column.name!r} ({derived_column.transform}), which is computed from it, so that "
            "the keys of partitions reveal its values"
            if derived_column.is_partition_field
            else f"table {table.name!r}: columns.{source} cannot be hidden alone: the column {derived_column.name!r} "
            f"({derived_column.transform}) is computed from it: hide that too "
            f"(columns.{derived_column.name}.values: hidden)"
        )


def _hidden_source(
    table: TableConfig, spec: ProfileSpec, hidden_columns: Sequence[Column], derived_column: DerivedColumn
) -> str | None:
    """Return the path of a hidden column that `derived_column` may be computed from, or None.

    If the sources of `derived_column` are unknown, it may be computed from any hidden column.
    """
    if not derived_column.sources:
        return hidden_columns[0].path if hidden_columns else None
    for identity, path in derived_column.sources:
        sources = [
            column for column in hidden_columns if identity in (column.field_id, spec.top_level_ids[column.field_id])
        ]
        if sources:
            return sources[0].path
        is_current = any(
            identity in (column.field_id, spec.top_level_ids[column.field_id]) for column, _ in spec.columns
        )
        # A column that the table no longer has goes by its last name.
        if not is_current and table.effective_policy(path).values == "hidden":
            return path
    return None


def column_paths(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns and nested fields of a schema, in table order."""
    return [column.path for column in schema_columns(schema)]
