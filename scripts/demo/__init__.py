"""The demo: a small lakehouse of TPC-H tables, with a refresh of its statistics after each commit."""
