"""The files of profiles: write them, read them, and derive states from stored value counts."""
