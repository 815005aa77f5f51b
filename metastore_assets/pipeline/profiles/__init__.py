"""The files of profiles: writing, reading, and derivation of mergeable states from value counts."""
