"""Resources of Dagster runs: the configuration, the Spark session, access to S3, and EMR Serverless."""
