"""Task runners: one interface to run a function on many tasks in this process, in child processes, or on Spark."""
