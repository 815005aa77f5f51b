"""The tables of a configuration's databases, from the listings of their catalogs."""

from metastore_assets.databases.expansion import SkippedTable, expand_databases, find_table
from metastore_assets.databases.table_listings import DatabaseListing, list_databases, load_listings, recorded_listings

__all__ = [
    "DatabaseListing",
    "SkippedTable",
    "expand_databases",
    "find_table",
    "list_databases",
    "load_listings",
    "recorded_listings",
]
