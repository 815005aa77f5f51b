"""Merging profiles along a tree: its shape, what a commit has to merge, doing that, and where the results lie."""
