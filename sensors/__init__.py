"""Dagster sensors: one requests runs after commits to a table, another reloads the code location.

It reloads the code location after tables were added to a database, or removed from it.
"""
