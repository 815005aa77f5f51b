"""The checks of `metastore doctor`: the environment, and access to the root and the tables."""
