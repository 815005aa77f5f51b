"""Export to Iceberg: a Puffin file with a theta sketch of each column, registered for a snapshot.

The catalog registers the file.

target          the target: what is written, registered, read and removed
sketches        theta sketches of values as Iceberg serializes them
puffin          Puffin files
partition_file  the partition statistics file
"""

from metastore_assets.exports.iceberg.target import IcebergTarget as IcebergTarget
