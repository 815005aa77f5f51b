"""The archived part of a Hudi timeline's second layout: when older instants completed."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_assets.errors import TableFormatError
from metastore_assets.formats.apart import read_one
from metastore_assets.formats.hudi_timeline import FOLDER, Timeline
from metastore_assets.formats.location import Location


def archived_completions(timeline: Timeline) -> dict[str, str]:
    """Completion times of archived instants by requested time; empty where nothing is archived.

    Raises OSError or TableFormatError.
    """
    location, properties = timeline.location, timeline.properties
    if timeline.layout == 1:
        return {}
    folder = "/".join(
        [
            FOLDER,
            properties.get("hoodie.timeline.path", "timeline"),
            properties.get("hoodie.timeline.history.path", "history"),
        ]
    )
    try:
        newest = location.read(f"{folder}/_version_").decode().strip()
        manifest = json.loads(location.read(f"{folder}/manifest_{newest}"))
    except FileNotFoundError:
        return {}
    found: dict[str, str] = {}
    try:
        for entry in manifest["files"]:
            path = f"{folder}/{entry['fileName']}"
            found |= read_one(_completions, location.full_path(path), location, path)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise TableFormatError(
            f"{location.full_path(folder)}: its archived instants cannot be read: {error}"
        ) from error
    return found


def _completions(location: Location, path: str) -> dict[str, str]:
    """Of one file. Runs in a child process."""
    with location.open(path) as source:
        table = pq.read_table(source, columns=["instantTime", "completionTime"])
    return dict(zip(table[0].to_pylist(), table[1].to_pylist(), strict=True))
