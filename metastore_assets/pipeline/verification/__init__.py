"""Verification of a version: its numbers are computed again from the table's files, and compared."""
