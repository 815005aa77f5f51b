"""Refreshes as jobs of EMR Serverless: what a job is told, what it answers, and what it does. Free of Dagster."""
