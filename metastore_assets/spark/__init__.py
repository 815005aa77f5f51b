"""Spark: sessions, classic and Connect, and the runner of tasks.

`pyspark` is imported when it is needed.
"""
