"""Values of columns as Arrow data: nested fields, type classes, conversions, truncation, and JSON."""
