"""What a table format tells of itself, so that it is found and opened, and that its files are read as nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import TableFormat
    from metastore_assets.formats.metadata_cache import MetadataCache
    from metastore_assets.storage.location import Location


@dataclass(frozen=True)
class Marks:
    """By what somebody who lists folders sees that a table of a format is there, and which files are its own."""

    folder: str
    """Name of the folder in the table's own where its metadata lie."""
    holds: Callable[[Location], bool]
    """Whether a folder is such a table, from a few requests. Raises OSError."""
    metadata_file: Callable[[str], bool] | None = None
    """Whether a file of that name in the metadata's folder tells it; None: that folder's name does."""
    partition_file: str | None = None
    """What the name of a file begins with that lies in every folder with data."""
    is_plain: bool = False
    """Whether such a folder is read as plain files, of which its metadata say which count."""
    unsupported: str | None = None
    """Of a format that is recognised and not read: what to do instead."""


@dataclass(frozen=True)
class Registration:
    """One table format."""

    name: str
    """As `format` of a table's configuration has it."""
    title: str
    """What people call it."""
    detect: Callable[[Location], bool]
    """Whether the location that a user names is such a table. Raises OSError."""
    open: Callable[[TableConfig, MetadataCache], TableFormat]
    """The table in this format, with what is known of its files. Nothing is read yet."""
    marks: Marks
