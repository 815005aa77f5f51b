"""Attacks on the program, each of which has to fail."""
