"""Exports to a Hive metastore: column statistics of a table and its partitions.

target             the export target
column_statistics  conversion of statistics to Thrift objects and back
metastore          a table in the metastore, over Thrift
"""

from metastore_assets.exports.hive.target import HiveTarget as HiveTarget
