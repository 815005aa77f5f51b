"""`python -m metastore_assets` is the `metastore` command."""

from metastore_assets.startup import remove_working_folder

remove_working_folder()

from metastore_assets.cli import main  # noqa: E402 (imports must not find modules of the working folder)

main()
