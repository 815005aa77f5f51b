"""SQL views for DuckDB and Spark of all published statistics below a root folder."""

from metastore_assets.sql.engines import query, spark_views
from metastore_assets.sql.views import VIEWS, read_view

__all__ = ["VIEWS", "query", "read_view", "spark_views"]
