"""The registration of table formats: how each is recognised, opened and configured."""

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

_DETECTION_ORDER = ("delta", "iceberg", "hudi")
"""Delta is first, because a Delta table may carry metadata of the others for their readers (UniForm, XTable)."""


@dataclass(frozen=True)
class FormatDetector:
    """The rules by which a listing of folders recognises the tables of a format and their files."""

    metadata_folder: str
    """Name of the folder, directly below the table's folder, that holds its metadata."""
    is_table: Callable[[Location], bool]
    """Return whether a folder is such a table, from a few requests. Raises OSError."""
    is_metadata_file: Callable[[str], bool] | None = None
    """Return whether a file name in a metadata folder is that of a metadata file. None: the folder's name is enough."""
    partition_file_prefix: str | None = None
    """Start of the name of a file that lies in every folder with data."""
    is_plain: bool = False
    """Whether such a folder is read as plain files, and its metadata say which files are part of the table."""
    unsupported: str | None = None
    """For a format that is recognised and not read: what the user can do instead."""


@dataclass(frozen=True)
class OpenContext:
    """The context of opening a table, besides the table's configuration."""

    cache: MetadataCache
    """What was read of the table's files before."""
    runner: TaskRunner | None = None
    """Runs the tasks that read whole data files; None: a child process, started when it is needed."""
    partitions: RegisteredFolders | None = None
    """The partitions that a catalog registers for plain files."""


@dataclass(frozen=True)
class FormatRegistration:
    """One table format, the value of an entry point in the group `metastore_assets.formats`.

    The entry point's name is what the configuration gives as `format`.
    """

    name: str
    """The name of the entry point."""
    title: str
    """The name of the format in messages."""
    open: Callable[[TableConfig, OpenContext], TableFormat]
    """Open a table without reading it. Raises ConfigError for options that the format does not have: they are
    validated here and nowhere else."""
    detect: Callable[[Location], bool] | None = None
    """Return whether the folder that a user names is such a table, from one or two requests. Raises OSError. None: only
    tables whose configuration names the format are opened with it."""
    detector: FormatDetector | None = None
    """Recognises tables among other files. None: files of such tables may be read as plain files by mistake."""
    extra: str | None = None
    """The extra of `metastore-assets` whose packages the format needs."""
    has_schema: bool = True
    """Whether tables have a schema, so that the configuration may not declare one."""


def load_format(name: str) -> FormatRegistration:
    """Return the registration of a format. Raises ConfigError for a name that no installed package registers."""
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
    """Return the names of all formats as a text."""
    return ", ".join(TABLE_FORMATS.names())


def detect_format(location: Location) -> str:
    """Return the name of the format that a folder's metadata are of; `files` when they are of none. Raises OSError."""
    for name in _DETECTION_ORDER:
        if _detects(name, location):
            return name
    return next(filter(partial(_detects, location=location), TABLE_FORMATS.installed_names()), "files")


def _detects(name: str, location: Location) -> bool:
    detect = load_format(name).detect
    return detect is not None and detect(location)


def format_detectors() -> dict[str, FormatDetector]:
    """Return the detectors of all formats by their titles."""
    names = (*_DETECTION_ORDER, *TABLE_FORMATS.installed_names())
    registrations = map(load_format, names)
    return {
        registration.title: registration.detector for registration in registrations if registration.detector is not None
    }


def check_option_names(table: TableConfig, *names: str) -> None:
    """Raise ConfigError for an option of the configuration that the format does not have.

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
