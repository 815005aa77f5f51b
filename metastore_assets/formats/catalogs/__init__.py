"""Catalogs: which tables there are in a database, of what format each is, and where it lies.

SQL and REST catalogs have Iceberg tables; Glue and Hive metastores have tables of any format. Nothing here
reads a table.
"""
