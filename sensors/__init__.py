"""Dagster sensors: one requests runs after commits to a table, another reloads the code location.

The code location is reloaded after tables were added to a database, or removed from the database.
"""
