"""`python -m metastore_assets` is the `metastore` command."""

from metastore_assets.cli import main

main()
