"""Catalogs, which record the format and location of each table of a database.

SQL and REST catalogs contain Iceberg tables; Glue and Hive metastores contain tables of any format. This package
queries catalogs only. The tables are opened by their formats.
"""
