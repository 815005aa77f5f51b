"""Values of columns as Arrow data: leaf columns, type classes, conversion of values, truncation, JSON."""
