"""Checks of tables, evaluated on the stored statistics: passed, failed, or unknown with the reason."""
