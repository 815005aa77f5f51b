"""Catalogs: the tables of a database, with format and location.

SQL and REST catalogs contain Iceberg tables; Glue and Hive metastores contain tables of any format. Tables are not read
here.
"""
