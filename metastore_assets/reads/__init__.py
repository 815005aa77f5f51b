"""Reads of the live rows of tables, without deleted ones.

Only data files that may have matching rows are opened.

The results are for Arrow, Polars and DuckDB. The package also plans the reads of Spark.
"""
