"""Readers of data files of each kind, one column at a time, in chunks of bounded size."""
