"""What YAML does not say of the assets of the Metastore."""

from metastore_assets import MetastoreTranslator, TableConfig, TablePartitions


class ByDay(MetastoreTranslator):
    def get_partitions(self, table: TableConfig) -> TablePartitions:
        """`day=2024-01-01` of the table is 2024-01-01 of the asset that writes it."""
        from own_project.defs.orders import DAYS

        return TablePartitions(DAYS)
