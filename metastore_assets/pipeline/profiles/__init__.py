"""The files of profiles: writing and reading them, and the states that follow from what is stored."""
