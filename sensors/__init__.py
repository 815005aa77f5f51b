"""Dagster sensors, which request runs after commits, and reload code for added or removed tables.

They reload the code location if a database has other tables.
"""
