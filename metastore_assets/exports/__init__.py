"""Exports: the statistics of a version, written to where engines look for them when they plan queries.

base      the interface of a target, and what a target gets to write
entries   the key `exports` of a table: parsing and validation
results   the state of a target
writing   writes, removes and describes the exports of a table
"""
