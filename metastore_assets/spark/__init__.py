"""Spark: its session, how a local one starts fast, and the runner of tasks. `pyspark` is imported when it is needed."""
