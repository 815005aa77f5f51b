"""The files of profiles: writing them, reading them, and deriving states from stored value counts."""
