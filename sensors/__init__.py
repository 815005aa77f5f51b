"""Dagster sensors: one requests runs after commits to a table, another reloads the code location.

The second one reloads it after tables were added to a database, or removed from the database.
"""
