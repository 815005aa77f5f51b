"""What `metastore doctor` checks: the environment, and access to the root and the tables."""
