"""Exports to Spark: statistics in table properties of its session catalog.

target      the export target
properties  the properties, as `ANALYZE TABLE` writes them
columns     the columns in the catalog, and the texts of their values
histograms  equi-height histograms and their text
"""

from metastore_assets.exports.spark.target import SparkTarget as SparkTarget
