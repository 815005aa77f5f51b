"""The completion times of the writes of a Hudi table, from the active timeline and from its archive.

A write is identified by its instant: its start time (requested time), as digits.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.parquet as pq

from metastore_assets.formats.hudi.timeline import FOLDER, Timeline, archive_folder
from metastore_assets.formats.metadata_json import as_object, as_objects, as_text, check_distinct, parse_json
from metastore_assets.storage.corrupt_input import metadata_errors
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import run_isolated


class CompletionTimes:
    """The completion times of the writes of a table.

    The archive is read when an archived instant is first requested.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._active = {instant.requested: instant.completed for instant in timeline.completed}
        self._archived: Mapping[str, str] | None = None

    def completion_time(self, instant: str) -> str:
        """Return the completion time of the write that started at `instant`, as digits.

        The result is `instant` if no completion time is recorded. Raises TableFormatError if the archive is
        corrupt, or FileNotFoundError if it lacks one of its files.
        """
        completion_time = self._active.get(instant)
        if completion_time is None and instant not in self._active:
            if self._archived is None:
                self._archived = _read_archive(self._timeline)
            completion_time = self._archived.get(instant)
        return completion_time or instant


def _read_archive(timeline: Timeline) -> dict[str, str]:
    """Return the completion times of archived instants by requested time.

    The result is empty if there is no archive. It is also empty in timeline layout 1, which records no such times.

    Raises:
        FileNotFoundError: the archive lacks one of its files.
        TableFormatError: a file of the archive cannot be read. The message names it.
    """
    location, properties = timeline.location, timeline.properties
    if timeline.layout == 1:
        return {}
    folder = f"{FOLDER}/{archive_folder(properties)}"
    path = f"{folder}/_version_"
    try:
        with metadata_errors(location.full_path(path)):
            path = f"{folder}/manifest_{location.read(path).decode().strip()}"
    except FileNotFoundError:
        return {}
    with metadata_errors(location.full_path(path)):
        entries = as_objects(as_object(parse_json(location.read(path)), "the list").get("files"), "files")
        names = [as_text(entry.get("fileName"), "fileName") for entry in entries]
        check_distinct(names, "the file")
    completion_times: dict[str, str] = {}
    for name in names:
        path = f"{folder}/{name}"
        with metadata_errors(location.full_path(path)):
            completion_times |= run_isolated(_read_archive_file, location.full_path(path), location, path)
    return completion_times


def _read_archive_file(location: Location, path: str) -> dict[str, str]:
    """Return completion times by requested time, from one file of the archive.

    Runs in a child process.
    """
    with location.open(path) as source:
        file = pq.ParquetFile(source, pre_buffer=False)
        table = file.read(["instantTime", "completionTime"], use_threads=False)
    pairs = zip(table[0].to_pylist(), table[1].to_pylist(), strict=True)
    return {
        as_text(requested_time, "instantTime"): as_text(completion_time, "completionTime")
        for requested_time, completion_time in pairs
    }
