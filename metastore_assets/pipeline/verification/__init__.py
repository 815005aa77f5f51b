"""Verification of a version: its statistics are recomputed from the table's files, and compared.

A version is the published statistics of a table at one snapshot.
"""
