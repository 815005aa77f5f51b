"""The value counts of a table: building and updating by a refresh, and plain files for other tools."""
