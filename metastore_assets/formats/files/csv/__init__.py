"""CSV files as text: rows, quotes, headers and types."""
