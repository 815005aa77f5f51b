"""The value counts of a table: how a refresh builds or updates them, and the plain files that other tools read."""
