"""What YAML does not say of the assets of the Metastore."""

from dagster import DailyPartitionsDefinition

from metastore_assets import MetastoreTranslator, TableConfig


class ByDay(MetastoreTranslator):
    def get_partitions_def(self, table: TableConfig) -> DailyPartitionsDefinition:
        """`day=2024-01-01` of the table is 2024-01-01 of the asset that writes it."""
        from own_project.defs.orders import DAYS

        return DAYS
