"""Plain files in folders: Parquet, ORC, Avro, CSV and JSON lines."""
