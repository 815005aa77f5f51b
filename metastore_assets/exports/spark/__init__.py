"""Exports to Spark: statistics as properties of tables in Spark's session catalog.

target           the export target
properties       statistics as the table properties that `ANALYZE TABLE` writes
catalog_columns  the columns in the catalog, and values in Spark's text form
histograms       equi-height histograms, and their encoding
"""

from metastore_assets.exports.spark.target import SparkTarget as SparkTarget
