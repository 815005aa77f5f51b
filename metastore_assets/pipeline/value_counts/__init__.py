"""The value counts of a table: how a refresh builds or updates them, and plain files for other tools."""
