"""Reads of the live rows of tables, which open only data files that may have matching rows.

For Arrow, Polars and DuckDB, and the plans of these reads and of Spark's.
"""
