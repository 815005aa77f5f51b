"""Tables, written by other libraries, that readers easily get wrong, with the expected result of profiling each."""
