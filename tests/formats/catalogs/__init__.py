"""Tests of tables that are opened by their names in catalogs."""
