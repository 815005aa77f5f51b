"""Where files lie, on disk or in an object store, and which of those that metadata name may be read."""
