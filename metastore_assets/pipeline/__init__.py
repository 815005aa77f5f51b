"""The refresh of a table's Metastore: plan, profile fragments, merge profiles, and publish a version."""
