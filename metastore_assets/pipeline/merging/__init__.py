"""Merge profiles along a tree: the tree, the merges that a commit needs, and the compaction of their files."""
