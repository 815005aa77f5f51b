"""Profile tables that real engines wrote, and compare the results with the truth: statistics from other readers."""
