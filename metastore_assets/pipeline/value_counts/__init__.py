"""The value counts of a table: built from profiles or updated by changes, plain files, fingerprinted columns."""
