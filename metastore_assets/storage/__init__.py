"""Reading of files on local disk and in object stores.

Locations, rules for the paths that a table may refer to, and limits for files that may be corrupt or malicious.
"""
