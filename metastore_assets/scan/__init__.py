"""What needs the table as well as its version: exact counts and scans, which read only what statistics leave open."""

from metastore_assets.lookup.answers import Counted
from metastore_assets.scan.counting import count
from metastore_assets.scan.frames import scan
from metastore_assets.scan.scoped import scoped

__all__ = ["Counted", "count", "scan", "scoped"]
