"""What Dagster sees of the Metastore: assets, checks, and the pictures they show."""
