"""Registrations of table formats: the functions that detect and open the tables of a format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from metastore_assets.errors import ConfigError
from metastore_assets.plugins import TABLE_FORMATS

if TYPE_CHECKING:
    from metastore_assets.config import TableConfig
    from metastore_assets.formats.base import TableFormat
    from metastore_assets.formats.catalogs.base import RegisteredFolders
    from metastore_assets.formats.metadata_cache import MetadataCache
    from metastore_assets.storage.location import Location
    from metastore_assets.tasks.runner import TaskRunner

_DETECTION_ORDER = ("delta", "iceberg", "hudi", "lance")
"""Delta is first, because a Delta table may also have metadata of the other formats for their readers (UniForm,
XTable)."""


@dataclass(frozen=True)
class FormatDetector:
    """The rules by which folder listings recognise tables of one format and their metadata files."""

    metadata_folder: str
    """Name of the folder with a table's metadata, directly below the table's folder."""
    is_table: Callable[[Location], bool]
    """Return True if a folder that contains `metadata_folder` is a table of the format. It sends few requests. Raises
    OSError."""
    is_metadata_file: Callable[[str], bool] | None = None
    """Return True for the name of a metadata file. None if every file in a metadata folder is one."""
    partition_file_prefix: str | None = None
    """Prefix of the name of a marker file that is in each folder with data; None if the format has no such file."""
    is_plain: bool = False
    """Whether the tables are read as plain files. Their metadata then only decide which files belong to the table."""
    has_partitions: bool = True
    """Whether the configuration can select partitions of the tables."""
    unsupported: str | None = None
    """For a format that is recognised but cannot be read: what the user can do instead."""


@dataclass(frozen=True)
class OpenContext:
    """The objects that a format needs to open a table, besides the table's configuration."""

    cache: MetadataCache
    """Values that were read from the table's files before."""
    runner: TaskRunner | None = None
    """Runs the tasks that read whole data files; None for a child process, which is started when it is needed."""
    partitions: RegisteredFolders | None = None
    """The partition folders that a catalog registers for a table of plain files; None without a catalog."""


@dataclass(frozen=True)
class FormatRegistration:
    """One table format, registered as an entry point in the group `metastore_assets.formats`.

    The configuration's `format` is the name of the entry point.
    """

    name: str
    """The name of the entry point."""
    title: str
    """The name of the format in messages."""
    open: Callable[[TableConfig, OpenContext], TableFormat]
    """Open a table without reading it. Raises ConfigError for invalid `options` of the table, which nothing else
    checks."""
    detect: Callable[[Location], bool] | None = None
    """Return True if a folder that the user configured without `format` has the metadata of this format. It sends one
    or two requests. Raises OSError. None if this format is never detected."""
    detector: FormatDetector | None = None
    """Recognises tables of the format in folders that are found by listing. Without a detector, the files of such
    tables may be read as plain files by mistake."""
    extra: str | None = None
    """The extra of `metastore-assets` that installs the packages which the format needs."""
    has_schema: bool = True
    """Whether the tables record their schema. If they do, the configuration must not declare one."""


def load_format(name: str) -> FormatRegistration:
    """Return the registration of a format.

    Raises ConfigError if no installed package registers the name, or if its entry point is no FormatRegistration
    of this name.
    """
    if name not in TABLE_FORMATS:
        raise ConfigError(f"no installed package has the table format {name!r}; there are: {format_list()}")
    registration = TABLE_FORMATS.load(name)
    if not isinstance(registration, FormatRegistration) or registration.name != name:
        raise ConfigError(
            f"the entry point {name!r} in {TABLE_FORMATS.group} is {registration!r:.200}, not a FormatRegistration "
            f"with the name {name!r}"
        )
    return registration


def format_list() -> str:
    """Return the names of all formats, joined by commas."""
    return ", ".join(TABLE_FORMATS.names())


def detect_format(location: Location) -> str:
    """Return the name of the format whose metadata a folder has; `files` if it has no metadata.

    Raises OSError if the folder cannot be read.
    """
    for name in _DETECTION_ORDER:
        if _detects(name, location):
            return name
    return next(filter(partial(_detects, location=location), TABLE_FORMATS.installed_names()), "files")


def _detects(name: str, location: Location) -> bool:
    detect = load_format(name).detect
    return detect is not None and detect(location)


def format_detectors() -> dict[str, FormatDetector]:
    """Return the detectors of all formats that have one.

    The keys are the names that messages use for the formats.
    """
    names = (*_DETECTION_ORDER, *TABLE_FORMATS.installed_names())
    registrations = map(load_format, names)
    return {
        registration.title: registration.detector for registration in registrations if registration.detector is not None
    }


def check_option_names(table: TableConfig, *names: str) -> None:
    """Raise ConfigError if the table's configuration has an option that its format does not have.

    Args:
        table: the configuration of the table.
        names: the names of all options of the format.
    """
    for name in table.options:
        if name not in names:
            advice = f"its options are: {', '.join(names)}" if names else "the format has no options; remove it"
            raise ConfigError(
                f"table {table.name!r}: options.{name} = {table.options[name]!r} is not an option of its format; "
                f"{advice}"
            )
