"""JSON lines: shapes of the objects, and their values."""
