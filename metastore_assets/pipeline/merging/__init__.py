"""Merging of profiles along a tree: the tree, the merges of a commit, and the compaction of files.

A profile is the stored statistics of a data file, a partition or the table. The leaves of a tree are profiles of data
files or of partitions, and each inner node merges those below it. A compaction copies small files of profiles to one.
"""
