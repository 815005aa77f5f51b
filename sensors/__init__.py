"""Dagster sensors, which request a run after a commit, and reload the code location if a database has other tables."""
