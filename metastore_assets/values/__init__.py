"""Values of columns as Arrow data: columns and nested fields, type classes, conversions, truncation, JSON."""
