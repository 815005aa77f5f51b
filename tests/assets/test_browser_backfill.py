"""Dagster's UI shows a backfill of scattered partitions.

The test launches the backfill by the HTTP request that the UI's button sends.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from dagster import DagsterRunStatus, RunsFilter
from dagster._core.execution.backfill import BulkActionStatus

from tests.assets.lab import CONFIG, Lab, key_of
from tests.assets.test_browser import REPOSITORY, SCREENSHOTS, answers, lab, page, process, reported_version, wait_for

__all__ = ["lab", "page"]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

DAYS = (1, 2, 4, 7)
INSTANCE = "telemetry: {enabled: false}\nnux: {enabled: false}\n"
_LAUNCH = """mutation Launch($given: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $given) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""


def launch(url: str, launch_parameters: Mapping[str, Any]) -> str:
    """Launch a backfill through the webserver at `url`; return its id.

    `launch_parameters` are GraphQL's launch parameters.
    """
    body = json.dumps({"query": _LAUNCH, "variables": {"given": launch_parameters}}).encode()
    request = Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        answer = json.load(response)
    result = answer["data"]["launchPartitionBackfill"]
    assert result["__typename"] == "LaunchBackfillSuccess", answer
    return str(result["backfillId"])


def test_a_backfill_of_scattered_partitions_is_shown_as_completed(lab: Lab, page: Any) -> None:
    """The page of a backfill of four partitions in three ranges shows that it succeeded.

    The backfill has three runs, and they publish one version, which has new statistics of exactly these partitions.
    """
    lab.config_file.write_text(CONFIG.replace("tables:", "engine: auto\ntables:"), encoding="utf-8")
    # One run of the table at a time: concurrent runs might read the same partitions twice.
    shipped_settings = (REPOSITORY / "dagster.yaml").read_text(encoding="utf-8")
    (lab.folder / "home" / "dagster.yaml").write_text(INSTANCE + shipped_settings, encoding="utf-8")
    lab.append(4, 5, 6, 7, count=2000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (
        process(lab.folder, "dagster-webserver", "-h", "127.0.0.1", "-p", str(port)),
        process(lab.folder, "dagster-daemon", "run"),
    ):
        wait_for("the webserver", 120, lambda: answers(f"{url}/server_info"))
        wait_for("the first version", 240, lambda: reported_version(lab, "sales") == 1)
        asset = {"path": ["sales", "sales_partitions"]}
        backfill = launch(url, {"assetSelection": [asset], "partitionNames": [key_of(day) for day in DAYS]})

        def has_ended() -> bool:
            result = lab.instance.get_backfill(backfill)
            return result is not None and result.status == BulkActionStatus.COMPLETED_SUCCESS

        wait_for("the backfill", 300, has_ended)
        page.set_viewport_size({"width": 1400, "height": 480})
        page.goto(f"{url}/runs/b/{backfill}")
        page.get_by_text("Succeeded").first.wait_for(timeout=60_000)
        page.get_by_text("4 partitions").first.wait_for(timeout=60_000)
        page.wait_for_timeout(1000)
        folder = Path(os.environ.get(SCREENSHOTS) or lab.folder)
        page.screenshot(path=folder / "backfill.png")
    runs = lab.instance.get_runs(RunsFilter(tags={"dagster/backfill": backfill}))
    assert [run.status for run in runs] == [DagsterRunStatus.SUCCESS] * 3
    version = lab.latest("sales")
    assert version.number == 2
    read = {entry.key for entry in version.partitions if entry.version == 2}
    assert read == {key_of(day) for day in DAYS}
