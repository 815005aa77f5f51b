"""What SQL text says of columns whose types are not known yet: conditions on rows, and on the values of partitions."""
