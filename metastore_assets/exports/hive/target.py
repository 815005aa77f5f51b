"""The export target `hive`: column statistics and row counts of a table and its partitions in Hive."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager

from metastore_assets.exports.catalog_target import CatalogOptions, CatalogTarget
from metastore_assets.exports.declared_columns import Numbers
from metastore_assets.exports.hive.metastore import ACCURATE, HiveTable, open_hive_table

_MAX_LENGTH = 4_000
"""The greatest length of a property. If the names of columns exceed it, only row count and size are declared to be
accurate."""


class HiveOptions(CatalogOptions):
    """The settings of an export to a Hive metastore."""

    accurate: bool = False
    """Whether `COLUMN_STATS_ACCURATE` declares the numbers to be accurate. Hive then answers `count`, `min` and `max`
    from them without reading the table, also after commits that have not been exported yet."""


class HiveTarget(CatalogTarget):
    """A target that writes statistics of a table and its partitions to a Hive metastore.

    The statistics are those of columns, and the numbers `numRows` and `totalSize`.
    """

    kind = "hive"
    title = "the Hive metastore"
    options_model = HiveOptions
    options: HiveOptions
    accuracy_property = ACCURATE

    def open(self) -> AbstractContextManager[HiveTable]:
        """Return a context manager that yields the table in the metastore.

        See `CatalogTarget.open`.
        """
        return open_hive_table(self.table, self.title)

    def properties_of(self, numbers: Numbers) -> dict[str, str]:
        """Return Hive's properties with row count and size.

        A further property declares these numbers accurate if the option `accurate` is set.
        """
        properties = super().properties_of(numbers)
        if self.options.accurate:
            exact = {one.column: "true" for one in numbers.columns if one.has_exact_bounds}
            accurate = json.dumps({"BASIC_STATS": "true", "COLUMN_STATS": exact}, separators=(",", ":"))
            properties[ACCURATE] = accurate if len(accurate) <= _MAX_LENGTH else '{"BASIC_STATS":"true"}'
        return properties

    def content_of(self, numbers: Numbers) -> str:
        """Return the value of the property `content` of a partition.

        See `CatalogTarget.content_of`.

        The value ends in `:accurate` if the option `accurate` is set, so a change of the option writes the partitions
        again.
        """
        return f"{numbers.content}:accurate" if self.options.accurate else numbers.content
