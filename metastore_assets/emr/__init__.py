"""The request, the answer and the program of EMR Serverless jobs, which run without Dagster."""
