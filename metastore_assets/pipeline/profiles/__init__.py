"""The files of profiles: writing, reading, and derivation of states from stored value counts."""
