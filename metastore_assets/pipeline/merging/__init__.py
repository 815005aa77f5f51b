"""Merging of profiles along a tree: the tree, the merges that a commit needs, and compaction of their files."""
