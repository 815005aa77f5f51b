"""The archived part of a Hudi timeline (second layout): completion times of older instants."""

from __future__ import annotations

import pyarrow.parquet as pq

from metastore_assets.formats.hudi.timeline import FOLDER, Timeline
from metastore_assets.formats.metadata_json import as_object, as_objects, as_text, check_distinct, parse_json
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import run_isolated


def archived_completions(timeline: Timeline) -> dict[str, str]:
    """Return completion times of archived instants by requested time; empty if nothing is archived.

    Raises OSError, or TableFormatError naming the file at fault.
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
    path = f"{folder}/_version_"
    try:
        with metadata_errors(location.full_path(path)):
            path = f"{folder}/manifest_{location.read(path).decode().strip()}"
        with metadata_errors(location.full_path(path)):
            entries = as_objects(as_object(parse_json(location.read(path)), "the list").get("files"), "files")
            names = [as_text(entry.get("fileName"), "fileName") for entry in entries]
            check_distinct(names, "the file")
    except FileNotFoundError:
        return {}
    completions: dict[str, str] = {}
    for name in names:
        path = f"{folder}/{name}"
        with metadata_errors(location.full_path(path)):
            completions |= run_isolated(_completions, location.full_path(path), location, path)
    return completions


def _completions(location: Location, path: str) -> dict[str, str]:
    """Return the completion times in one file. Runs in a child process."""
    with location.open(path) as source:
        file = pq.ParquetFile(source, pre_buffer=False)
        table = file.read(["instantTime", "completionTime"], use_threads=False)
    pairs = zip(table[0].to_pylist(), table[1].to_pylist(), strict=True)
    return {as_text(began, "instantTime"): as_text(ended, "completionTime") for began, ended in pairs}
