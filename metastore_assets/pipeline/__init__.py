"""Plan, profile, reduce, publish: the Spark jobs that bring the Metastore of a table up to its current snapshot."""
