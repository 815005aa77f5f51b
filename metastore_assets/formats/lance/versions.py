"""Versions of a Lance table: manifests, branches, tags, and the version that `at` selects.

Each version has one manifest file in the folder `_versions`. A branch is a folder `tree/<branch>` with versions. A tag
is a JSON file that names a version of a branch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote

from metastore_assets.errors import SnapshotNotFoundError, TableNotFoundError
from metastore_assets.formats.base import state_not_found
from metastore_assets.formats.metadata_json import as_integer, as_object, as_text, parse_json
from metastore_assets.iso8601 import parse_moment
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.storage.location import Location, StoredFile

FOLDER = "_versions"
_TAGS = "_refs/tags"
_BRANCHES = "_refs/branches"
_MANIFEST = re.compile(r"(\d+)\.manifest", re.ASCII)
_REVERSED_DIGITS = 20
"""Number of digits in names of the newer scheme, which are _MAX_VERSION minus the version."""
_MAX_VERSION = 2**64 - 1
_MAIN = "main"
_REF = re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)*")
"""Matches names of branches. Names of tags have no slash."""


@dataclass(frozen=True)
class LanceVersion:
    """One version of a branch of a Lance table."""

    location: Location
    """The folder of the branch. For the main branch it is the table's folder."""
    branch: str | None
    """None for the main branch."""
    number: int
    manifest: StoredFile
    """The manifest file, with its path below `location`."""

    @property
    def id(self) -> str:
        """The id of the snapshot: `12`, or `experiment:12` on the branch `experiment`."""
        return str(self.number) if self.branch is None else f"{self.branch}:{self.number}"

    @property
    def manifest_path(self) -> str:
        """Path or URI of the manifest file."""
        return self.location.full_path(self.manifest.path)


def is_manifest(name: str) -> bool:
    """Return True if a file name in the folder `_versions` is that of a version's manifest.

    Manifests of detached versions, which belong to no branch, have other names.
    """
    return _MANIFEST.fullmatch(name) is not None


def is_lance_table(location: Location) -> bool:
    """Return True if a folder has the manifest of a version.

    Raises OSError.
    """
    return any(map(is_manifest, location.names(FOLDER)))


def newest_version(location: Location) -> LanceVersion:
    """Return the newest version of the main branch, from one listing.

    Raises TableNotFoundError if there is none.
    """
    return _newest(location, None, list_versions(location))


def list_versions(location: Location, branch: str | None = None) -> dict[int, LanceVersion]:
    """Return the stored versions of a branch by number, in ascending order.

    The result is empty if there is no such branch.

    Args:
        location: the folder of the table.
        branch: the branch; None for the main branch.
    """
    if branch is not None and not _REF.fullmatch(branch):
        return {}
    folder = location if branch is None else location.below(f"tree/{branch}")
    versions = {}
    for stored_file in folder.files(FOLDER):
        if match := _MANIFEST.fullmatch(stored_file.path.rpartition("/")[2]):
            number = _MAX_VERSION - int(match[1]) if len(match[1]) == _REVERSED_DIGITS else int(match[1])
            versions[number] = LanceVersion(folder, branch, number, stored_file)
    return dict(sorted(versions.items()))


def resolve_version(
    location: Location, at: str, version_at: Callable[[Mapping[int, LanceVersion], datetime], int | None]
) -> LanceVersion:
    """Return the version that the option `at` names.

    Args:
        location: the folder of the table.
        at: a tag; a branch, for its newest version; a version; a branch and a version (`experiment:12`); or a time in
            the history of the main branch. The first of these that exists is used.
        version_at: returns the newest of some versions that was committed at or before a time; None if all are later.

    Raises:
        TableNotFoundError: there is no table.
        SnapshotNotFoundError: the table does not have that state.
        TableFormatError: the file of the tag is corrupt.
    """
    if tag := _read_tag(location, at):
        branch, number = tag
        versions = list_versions(location, branch)
        if number not in versions:
            raise SnapshotNotFoundError(f"{location.uri}: the tag {at!r} names version {number}, which was removed")
        return versions[number]
    versions = list_versions(location)
    newest = _newest(location, None, versions)
    if at == _MAIN:
        return newest
    if branch_versions := list_versions(location, at):
        return _newest(location, at, branch_versions)
    name, _, digits = at.rpartition(":")
    if digits.isascii() and digits.isdecimal():
        candidates = versions if name in ("", _MAIN) else list_versions(location, name)
        if int(digits) in candidates:
            return candidates[int(digits)]
    if (moment := parse_moment(at)) is not None:
        newest_number = version_at(versions, moment)
        if newest_number is None:
            raise state_not_found(location.uri, at, "its stored versions are later", versions)
        return versions[newest_number]
    choices = "a tag, a branch, a version or a time may be named, of which there are"
    raise state_not_found(
        location.uri, at, choices, [*_ref_names(location, _TAGS), *_ref_names(location, _BRANCHES), *versions]
    )


def _newest(location: Location, branch: str | None, versions: Mapping[int, LanceVersion]) -> LanceVersion:
    if not versions:
        raise TableNotFoundError(f"{location.uri} is no Lance table: there is no {FOLDER} with manifests")
    return versions[max(versions)]


def _read_tag(location: Location, name: str) -> tuple[str | None, int] | None:
    """Return the branch and the version number that a tag names; None if there is no such tag.

    For a tag of the main branch, the result is (None, 7), for example.
    """
    if not _REF.fullmatch(name) or "/" in name:
        return None
    path = f"{_TAGS}/{quote(name)}.json"
    try:
        with metadata_errors(location.full_path(path), "the tag in"):
            tag = as_object(parse_json(location.read(path)), "the tag")
            branch = tag.get("branch")
            number = as_integer(tag.get("version"), "version", minimum=0)
            return None if branch is None else as_text(branch, "branch"), number
    except FileNotFoundError:
        return None


def _ref_names(location: Location, folder: str) -> Iterator[str]:
    yield from sorted(unquote(name.removesuffix(".json")) for name in location.names(folder))
