"""Whole databases of a configuration."""
