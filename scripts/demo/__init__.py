"""The demo: a small lakehouse of TPC-H tables, commits to them, and a refresh of their statistics after each commit."""
