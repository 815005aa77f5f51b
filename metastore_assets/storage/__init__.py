"""Reading of files on local disk and in object stores.

The package has locations, rules for the paths that a table may refer to, and limits for corrupt or malicious files.
"""
