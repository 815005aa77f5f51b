"""Reading of JSON lines: the shapes of their objects, and their values."""
