"""The HTML report about a table: one self-contained file."""

from metastore_assets.report.html.page import report_page

__all__ = ["report_page"]
