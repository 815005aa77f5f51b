"""Catalogs, which record the format and location of each table of a database.

SQL and REST catalogs contain Iceberg tables; Glue and Hive metastores contain tables of any format. This package
only queries catalogs. The packages of the table formats open the tables.
"""
