"""Verify a version: compute its numbers again from the table's files, and compare them."""
