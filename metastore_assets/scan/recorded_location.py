"""Where a version says that its table is: read only as far as the caller confirms it.

Whoever can write below a root can forge a version. Else a forged one would have any file or bucket read that the caller
has permissions for, or any module imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError, CorruptionError
from metastore_assets.messages import redact
from metastore_assets.pipeline.table_location import RECORDED_FIELDS
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import StorageAddress
from metastore_assets.store.manifest import Version


def recorded_table_config(
    version: Version, uri: str, confirmed: Sequence[str], storage_options: Mapping[str, str]
) -> TableConfig:
    """Return the configuration of a table as its version records it, with the options that the caller has.

    Args:
        version: The version.
        uri: Where the table is: as the version says, or as the caller says.
        confirmed: Locations that the caller names. Each location in the version must lie at or below one of them.
        storage_options: Options of the table's object store, which versions do not have.

    Raises:
        ConfigError: A location is not confirmed: names it.
        CorruptionError: The version records settings that say nothing about a place, or that make no configuration.
    """
    recorded = {**(version.place or {}), "uri": uri}
    named = f"version {version.number} of table {version.table!r}"
    foreign = sorted(recorded.keys() - RECORDED_FIELDS)
    if foreign:
        raise CorruptionError(
            f"{named} is damaged or forged: it records the setting {foreign[0]!r} of its table, which no version "
            "does; give the table's configuration (`table=`)"
        )
    try:
        table = TableConfig.validate_raw({**recorded, "name": version.table, "storage_options": storage_options})
    except ValidationError as error:
        problem = error.errors(include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise CorruptionError(f"{named} records no valid place of its table: {where}: {problem['msg']}") from error
    for location in (table.uri, *table.path_mapping.values(), *table.allow):
        if not is_below(location, confirmed):
            raise ConfigError(
                f"{named} says that files of the table are at {redact(location)}, and whoever writes the root can "
                f"write that: confirm it, with `open_table(…, table_locations=[{redact(location)!r}])`, or give the "
                "table's URI or configuration, as `table=`, or as option `uri` or `config` of Spark's source"
            )
    return table


def is_below(location: str, folders: Iterable[str]) -> bool:
    """Return whether a location is one of some folders or lies below one, however they are spelt."""
    place = StorageAddress.of(Location.of(location).uri)
    if place is None:
        return False
    named = (StorageAddress.of(Location.of(os.path.expanduser(folder)).uri) for folder in folders)
    return any(folder.contains(place) for folder in named if folder is not None)
