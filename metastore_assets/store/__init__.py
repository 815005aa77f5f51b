"""The stored state of a Metastore: objects, version documents, entries, and segment sets.

A version is the published statistics of a table at one snapshot. Its document is a JSON file. The document and the
entries together name all other files of the version. An entry describes a fragment (a data file with its deletes), a
partition or the like. The entries of each kind are a segment set: rows with unique keys in sorted Parquet files.
"""
