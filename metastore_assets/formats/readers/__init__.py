"""Readers of Parquet, ORC and Avro files.

They return one column at a time, in chunks of bounded size.
"""
