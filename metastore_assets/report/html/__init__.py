"""The page that a person looks at before querying a table: one HTML file, which needs nothing else."""

from metastore_assets.report.html.page import report_page

__all__ = ["report_page"]
