"""Values of columns as Arrow data: type classes, the leaves of nested schemas, stored forms, order, and JSON."""
