"""Mutation tests of the produce layer: known mistakes are put into its code, and its property test must find each."""
