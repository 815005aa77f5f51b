"""Refreshes as EMR Serverless jobs: request, answer and the job's program, without Dagster."""
