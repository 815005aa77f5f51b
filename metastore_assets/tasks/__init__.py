"""Task runners: one interface to run a function on many tasks here, in child processes, or on Spark."""
