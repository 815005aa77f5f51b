"""The collection of real tables: location, features and true statistics of each."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = {"listing": "files"}
"""The Metastore's name of a format, by its name in the collection, where they differ."""


@dataclass(frozen=True)
class RealTable:
    """One table of the collection."""

    name: str
    """The unique name, `FORMAT/NAME`."""
    format: str
    features: str
    """What is special about the table, separated by `;`."""
    uri: str
    """The folder with the unpacked table."""
    path_mapping: tuple[tuple[str, str], ...]
    """Pairs of a location prefix in the table's metadata and the folder that now has these files."""
    truth: dict[str, Any]
    """Statistics of the table from other readers. With the key `error`, no reader can read the table."""


def real_tables(folder: Path, unpack_folder: Path) -> list[RealTable]:
    """Return all tables of a collection.

    Args:
        folder: The folder of the collection.
        unpack_folder: A folder into which tables in archives are unpacked.
    """
    return [_table(folder, unpack_folder, entry) for entry in json.loads((folder / "manifest.json").read_text())]


def _table(folder: Path, unpack_folder: Path, entry: dict[str, Any]) -> RealTable:
    path = folder / entry["path"]
    if "packed" in entry:
        with zipfile.ZipFile(folder / entry["packed"]) as archive:
            archive.extractall(unpack_folder / entry["format"])
        path = unpack_folder / entry["format"] / entry["name"]
    truth = json.loads((folder / "truth" / f"{entry['format']}__{entry['name']}.json").read_text())
    return RealTable(
        name=f"{entry['format']}/{entry['name']}",
        format=KINDS.get(entry["format"], entry["format"]),
        features=_features(entry),
        uri=str(path),
        path_mapping=tuple(
            (recorded_path, str(folder / now)) for recorded_path, now in entry.get("location_remap", ())
        ),
        truth=truth,
    )


def _features(entry: dict[str, Any]) -> str:
    if "features" not in entry:
        return f"{entry['file_format']}; {entry['name'].partition('_')[2].replace('_', ' ')}"
    version = str(entry.get("version", "")).replace("?", "")
    return str(entry["features"]) if version in entry["features"] else f"{version}; {entry['features']}"
