"""Merging of profiles along a tree: the tree, the merges of a commit, and the compaction of files."""
