"""Foreign files are read apart, in child processes: what is in a file may end the process that reads it."""
