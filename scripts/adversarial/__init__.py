"""Tables by other libraries that readers easily get wrong, with the expected profiling results."""
