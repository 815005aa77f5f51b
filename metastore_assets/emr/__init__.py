"""The program of EMR Serverless jobs, its request and its answer.

Jobs need only the package dagster-pipes.
"""
