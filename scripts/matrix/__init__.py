"""Checks of the package in environments with the lowest, newest and other supported versions of dependencies."""
