"""Exports to AWS Glue: column statistics of a table and its partitions.

target             the export target
column_statistics  conversion of statistics to Glue's types and back
catalog            a table in Glue, over boto3
"""

from metastore_assets.exports.glue.target import GlueTarget as GlueTarget
