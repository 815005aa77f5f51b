"""Whole databases of a configuration: which tables they have now, and which they had when they were last looked at."""

from metastore_assets.databases.looking import Members, look, remember
from metastore_assets.databases.naming import LeftOut, with_members

__all__ = ["LeftOut", "Members", "look", "remember", "with_members"]
