"""Mistakes put into the produce/reduce layer on purpose, to see that the property of its tests finds each."""
