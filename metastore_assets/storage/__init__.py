"""Reading of files on local disk and in object stores.

Locations, the check of which paths a table may refer to, and limits for files that may be corrupt or malicious.
"""
