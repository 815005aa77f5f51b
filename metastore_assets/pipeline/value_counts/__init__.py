"""The value counts of a table: building and updating by a refresh, and plain files for other tools.

Value counts are the distinct values of a column with their frequencies. A refresh computes and publishes the statistics
of a table.
"""
