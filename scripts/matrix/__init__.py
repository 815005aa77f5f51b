"""Tries the package in environments with the lowest and the newest supported versions, and some between."""
