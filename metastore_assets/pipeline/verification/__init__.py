"""Verification of a version: its numbers are recomputed from the table's files, and compared."""
