"""The files of profiles: writing, reading, and derivation of mergeable states from value counts.

A profile is the statistics of a data file, a partition or the table. States are the mergeable forms of statistics, such
as sketches. Value counts are the distinct values of a column with their frequencies.
"""
