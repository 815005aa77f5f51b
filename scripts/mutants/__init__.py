"""Mutation tests of the produce layer: its property test must find each mistake put into its code.

The produce layer is the package `metastore_assets.produce`, which updates stored results incrementally.
"""
