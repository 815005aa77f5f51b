"""Exports of a version's statistics to targets, from which engines read them to plan queries.

A version is the published statistics of a table at one snapshot.

base                the interface of a target, and the view of a version that it writes
configured_targets  the key `exports` of a table: parsing, validation, and the targets that it names
export_result       the state of one target, as commands print it
writing             functions that write, inspect and remove the exports of a table
catalog_target      the base class of the targets `hive` and `glue`
catalog_table       the interface through which these two targets change a table in a catalog
"""
