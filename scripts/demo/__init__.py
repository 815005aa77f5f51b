"""The demo: a small lakehouse of TPC-H tables, commits to them, and what the Metastore makes of each commit."""
