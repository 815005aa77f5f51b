"""The partitions of the Metastore's assets, which YAML cannot define."""

from dagster import DailyPartitionsDefinition

from metastore_assets import MetastoreTranslator, TableConfig


class ByDay(MetastoreTranslator):
    def get_partitions_def(self, table: TableConfig) -> DailyPartitionsDefinition:
        """Return the partitions of the asset that writes the table.

        The table's partition `day=2024-01-01` is the asset's partition `2024-01-01`.
        """
        from own_project.defs.orders import DAYS

        return DAYS
