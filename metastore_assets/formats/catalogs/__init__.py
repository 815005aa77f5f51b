"""Catalogs: the format and location of each table of a database.

SQL and REST catalogs contain Iceberg tables; Glue and Hive metastores contain tables of any format. The package reads
catalogs only, no tables.
"""
