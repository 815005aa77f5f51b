"""Mutation tests of the produce layer: its property test must find each mistake put into its code."""
