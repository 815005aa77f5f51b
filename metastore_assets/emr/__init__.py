"""The request, the answer and the program of EMR Serverless jobs. Jobs run without Dagster."""
