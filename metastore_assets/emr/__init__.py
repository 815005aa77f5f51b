"""The program of EMR Serverless jobs, its request and its answer. Jobs run without Dagster itself."""
