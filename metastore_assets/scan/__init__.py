"""What needs the table as well as its version: exact counts and scans, which read only what statistics leave open."""

from metastore_assets.scan.counting import Counted, count
from metastore_assets.scan.frames import scan

__all__ = ["Counted", "count", "scan"]
