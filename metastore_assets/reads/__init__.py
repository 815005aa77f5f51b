"""Reads of the live rows of tables, which open only data files that may have matching rows.

The package serves Arrow, Polars and DuckDB. It also plans these reads, and those of Spark.
"""
