"""Data files of each kind: their columns, one at a time, in chunks of bounded size."""
