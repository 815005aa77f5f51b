"""The real tables: where each lies, what is special about it, and what it is known to hold."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = {"listing": "files"}
"""What the folder of real tables calls a format, where the Metastore's name is another."""


@dataclass(frozen=True)
class RealTable:
    """One table of the collection."""

    name: str
    """`format/name`, unique."""
    format: str
    features: str
    uri: str
    """Where it lies now, unpacked."""
    path_mapping: tuple[tuple[str, str], ...]
    """Location prefixes that its metadata recorded, and the folders they are now."""
    truth: dict[str, Any]


def real_tables(folder: Path, unpacked: Path) -> list[RealTable]:
    """All tables of the collection in `folder`; those in archives are unpacked into `unpacked`."""
    return [_table(folder, unpacked, entry) for entry in json.loads((folder / "manifest.json").read_text())]


def _table(folder: Path, unpacked: Path, entry: dict[str, Any]) -> RealTable:
    path = folder / entry["path"]
    if "packed" in entry:
        with zipfile.ZipFile(folder / entry["packed"]) as archive:
            archive.extractall(unpacked / entry["format"])
        path = unpacked / entry["format"] / entry["name"]
    truth = json.loads((folder / "truth" / f"{entry['format']}__{entry['name']}.json").read_text())
    return RealTable(
        name=f"{entry['format']}/{entry['name']}",
        format=KINDS.get(entry["format"], entry["format"]),
        features=_features(entry),
        uri=str(path),
        path_mapping=tuple((recorded, str(folder / now)) for recorded, now in entry.get("location_remap", ())),
        truth=truth,
    )


def _features(entry: dict[str, Any]) -> str:
    if "features" not in entry:
        return f"{entry['file_format']}; {entry['name'].partition('_')[2].replace('_', ' ')}"
    version = str(entry.get("version", "")).replace("?", "")
    return str(entry["features"]) if version in entry["features"] else f"{version}; {entry['features']}"
