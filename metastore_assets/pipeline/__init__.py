"""The refresh of a table: plan, profile fragments, merge profiles, and publish a version.

A fragment is a data file with its deletes, and its profile is its statistics. A version is the published statistics of
a table at one snapshot.
"""
