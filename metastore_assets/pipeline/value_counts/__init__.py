"""The lists of a table's values: built from scratch, or brought on by what came and went; plain files; fingerprints."""
