"""The refresh of a table: plan, profile fragments, merge profiles, and publish a version."""
