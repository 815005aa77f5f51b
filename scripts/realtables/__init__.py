"""Profiles of tables that real engines wrote, compared with the truth: other readers' statistics."""
