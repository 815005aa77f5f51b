"""Tests of configurations that include all tables of a database."""
