"""Checks of the package with the lowest, newest and other supported versions of dependencies."""
