"""Reading of files on local disk and in object stores: locations, path policy, and limits for foreign files."""
