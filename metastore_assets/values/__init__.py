"""Values of columns as Arrow data: leaf columns, type classes, canonical and physical forms, truncation, JSON."""
