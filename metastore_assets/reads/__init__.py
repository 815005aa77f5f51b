"""Reads of rows of tables, with deletes applied.

Only data files that may have matching rows are opened.

The results are for Arrow, Polars and DuckDB. The package also plans the reads of Spark.
"""
