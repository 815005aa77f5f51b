"""Reading of CSV files: their rows, quotes, headers and types."""
