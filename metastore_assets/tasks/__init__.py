"""Task runners: one interface to run tasks in this process, in child processes, or on Spark."""
