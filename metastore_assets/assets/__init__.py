"""The Metastore in Dagster: assets, checks, jobs, and the runs that refresh tables and report events."""
