"""The files of profiles: writing, reading, and derivation of states (mergeable statistics) from value counts."""
