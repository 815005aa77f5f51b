"""The scanner that reads data files for a `lookup.Table`, and checks of locations in versions.

A version has the statistics of one snapshot of a table, and records the table's location. Versions are stored below a
folder, the root. A user who can write there can forge a version, which could make the caller read any accessible file
or bucket. Therefore a recorded location is used only if the caller confirms it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pydantic import ValidationError

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, CorruptionError
from metastore_assets.expressions.predicates import Predicate
from metastore_assets.lookup import FilteredView, Table
from metastore_assets.lookup.results import Count
from metastore_assets.lookup.table import ScanRequest, SnapshotChoice
from metastore_assets.messages import redact
from metastore_assets.pipeline.table_location import RECORDED_FIELDS
from metastore_assets.reads.matching_rows import StartSpark
from metastore_assets.reads.snapshot_rows import SnapshotRows
from metastore_assets.scan.dataframe import scan
from metastore_assets.scan.exact_count import count
from metastore_assets.scan.filtered_view import filter_table
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import StorageAddress
from metastore_assets.store.version import Version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TableScanner:
    """A reader of the data files of tables for `lookup.Table`.

    It implements the protocol `Scanner`.
    """

    def filter(
        self, lookup: Table, predicate: Predicate, table: TableConfig | None, spark: StartSpark | None
    ) -> FilteredView:
        """Return a view of the rows that match a predicate.

        If `table` is None, the view reads no data file.
        """
        return filter_table(lookup, predicate, table, spark)

    def count(
        self,
        lookup: Table,
        table: TableConfig,
        where: str | pc.Expression,
        spark: StartSpark | None,
        snapshot: SnapshotChoice,
    ) -> Count:
        """Return the exact number of matching rows."""
        return count(lookup, table, where, spark, snapshot=snapshot)

    def scan(self, lookup: Table, table: TableConfig, spark: SparkSession, request: ScanRequest) -> DataFrame:
        """Return the requested rows as a Spark DataFrame."""
        return scan(lookup, table, spark, request)

    def open_rows(self, lookup: Table, table: TableConfig, snapshot: SnapshotChoice) -> SnapshotRows:
        """Return the rows of a snapshot.

        No data file is read yet.
        """
        return SnapshotRows(lookup, table, snapshot)

    def recorded_table(
        self, version: Version, uri: str, confirmed_locations: Sequence[str], storage_options: Mapping[str, str]
    ) -> TableConfig:
        """Return the table configuration that `version` records, but with `uri` and `storage_options`.

        The caller trusts `confirmed_locations`. Each location in the configuration, including `uri`, must equal one of
        them or lie below it.

        Raises:
            ConfigError: A location is not confirmed.
            CorruptionError: The version records an invalid location, or a setting that versions never record.
        """
        return parse_recorded_location(version, uri, confirmed_locations, storage_options)


def parse_recorded_location(
    version: Version, uri: str, confirmed_locations: Sequence[str], storage_options: Mapping[str, str]
) -> TableConfig:
    """Return a table configuration with a version's recorded location and the caller's storage options.

    Args:
        version: The version.
        uri: The location of the table, from the version or from the caller.
        confirmed_locations: Locations that the caller trusts. Each recorded location must equal one of them or lie
            below it.
        storage_options: Options of the table's object store, which versions do not contain.

    Raises:
        ConfigError: A location is not confirmed; the message names it.
        CorruptionError: The version records an invalid location, or a setting that versions never record.
    """
    recorded_location = {**(version.table_location or {}), "uri": uri}
    subject = f"version {version.number} of table {version.table!r}"
    unexpected_fields = sorted(recorded_location.keys() - RECORDED_FIELDS)
    if unexpected_fields:
        raise CorruptionError(
            f"{subject} is damaged or forged: it records the setting {unexpected_fields[0]!r} of its table, which no "
            "version does; give the table's configuration (`table=`)"
        )
    try:
        table = TableConfig.validate_raw(
            {**recorded_location, "name": version.table, "storage_options": storage_options}
        )
    except ValidationError as error:
        problem = error.errors(include_input=False)[0]
        key = ".".join(map(str, problem["loc"]))
        raise CorruptionError(f"{subject} records no valid location of its table: {key}: {problem['msg']}") from error
    for location in (table.uri, *table.path_mapping.values(), *table.allow):
        if not is_at_or_below(location, confirmed_locations):
            raise ConfigError(
                f"{subject} says that files of the table are at {redact(location)}, which anyone who can write below "
                f"the root could have changed: confirm it, with "
                f"`open_table(…, table_locations=[{redact(location)!r}])`, or give the "
                "table's URI or configuration, as `table=`, or as option `uri` or `config` of Spark's source"
            )
    return table


def is_at_or_below(location: str, folders: Iterable[str]) -> bool:
    """Return whether a location equals one of the folders or lies below one.

    `s3a://b/x` equals `s3://b/x/`.
    """
    address = StorageAddress.of(Location.of(location).uri)
    if address is None:
        return False
    addresses = (StorageAddress.of(Location.of(os.path.expanduser(folder)).uri) for folder in folders)
    return any(folder_address.contains(address) for folder_address in addresses if folder_address is not None)
