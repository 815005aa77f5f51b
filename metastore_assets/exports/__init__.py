"""Exports: the statistics of a version, written to the places from which engines read them to plan queries.

base      the interface of a target, and the view of a version that it writes entries   the key `exports` of a table:
parsing and validation results   the state of a target writing   writes, removes and describes the exports of a table
"""
