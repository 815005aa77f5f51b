"""Generated reference pages: configuration, command line, JSON schemas and Python API."""
