"""Dagster's UI shows our assets, checks and pictures.

The webserver and the daemon are real processes, and the browser is a headless Chromium.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus, RunsFilter

from tests.assets.lab import CONFIG, Lab, key_of

pytestmark = [pytest.mark.browser, pytest.mark.spark, pytest.mark.timeout(1200)]

REPOSITORY = Path(__file__).parents[2]
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = "METASTORE_SCREENSHOTS"
"""The environment variable with the folder for screenshots. Without it, they are in the test's temporary folder."""
CHECKS = """uri: ./sales,
     checks: [{fresh: 6h}, {row_count: 1000, partitions: all}],
     columns: {id: {checks: [not_null, unique]}, note: {frequencies: off, checks: [unique]},
               shop: {checks: [{accepted_values: [Berlin, Oslo, Paris]}]}, price: {checks: [{range: {minimum: 0}}]}},"""
INSTANCE = "telemetry: {enabled: false}\nnux: {enabled: false}\nrun_monitoring: {enabled: true}\n"


def wait_for(what: str, seconds: float, result: Callable[[], bool]) -> None:
    """Wait until `result` returns true.

    Fail after `seconds`, with `what` in the message.
    """
    end = time.monotonic() + seconds
    while not result():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.5)


@contextmanager
def process(folder: Path, program: str, *arguments: str) -> Iterator[None]:
    """Run a program of this Python environment during the block, then end it and its children."""
    environment = {
        **os.environ,
        "METASTORE_CONFIG": str(folder / "metastore.yaml"),
        "DAGSTER_HOME": str(folder / "home"),
    }
    command = [Path(sysconfig.get_path("scripts")) / program, *arguments, "-w", REPOSITORY / "workspace.yaml"]
    with (folder / f"{program}.log").open("ab") as log:
        server = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A project with checks, three days per table, and a Dagster instance for several processes."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text(INSTANCE, encoding="utf-8")
    (tmp_path / "metastore.yaml").write_text(CONFIG.replace("uri: ./sales,", CHECKS), encoding="utf-8")
    with DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        new_lab = Lab(tmp_path, instance)
        new_lab.append(1, 2, 3, count=2000)
        for day in (1, 2, 3):
            new_lab.write_file(day)
        yield new_lab


@pytest.fixture
def page() -> Iterator[Any]:
    """A page of a headless Chromium: the system's, or else the one that Playwright installs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        executable = shutil.which("chromium") or playwright.chromium.executable_path
        if not os.path.exists(executable):
            pytest.skip("no Chromium: `make test-browser` installs one")
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser.new_page(viewport={"width": 1400, "height": 1000})
        browser.close()


def reported_version(lab: Lab, table: str) -> int:
    event = lab.instance.get_latest_materialization_event(AssetKey([table, f"{table}_statistics"]))
    materialization = event.asset_materialization if event else None
    return int(str(materialization.metadata["version"].value)) if materialization else 0


def assert_page_shows(page: Any, lab: Lab, url: str, name: str, row_count: str) -> None:
    """Assert that the page shows a row count, a thumbnail, and the full picture after a click.

    `name` begins the file names of the screenshots.
    """
    folder = Path(os.environ.get(SCREENSHOTS) or lab.folder)
    page.goto(url)
    page.get_by_text("Show Markdown").first.wait_for(timeout=60_000)
    page.screenshot(path=folder / f"{name}.png")
    assert re.search(
        rf"row_count\s+{row_count}\b|Row count\s+{row_count[:-3]},?{row_count[-3:]}\b", page.inner_text("body")
    )
    small = page.locator("img[alt='statistics']").first
    assert small.evaluate("image => image.complete && image.naturalWidth") == 328
    page.get_by_text("Show Markdown").first.click()
    image = page.locator("img[alt='summary of statistics']")
    image.wait_for(timeout=60_000)
    page.wait_for_timeout(500)  # The dialog fades in.
    page.screenshot(path=folder / f"{name}-picture.png")
    assert image.evaluate("image => image.complete && image.naturalWidth") == 860
    assert image.evaluate("image => image.getBoundingClientRect().width") > 600


def assert_checks_are_shown(page: Any, lab: Lab, url: str) -> None:
    """Assert that the pages of two checks show why one failed and why the other is unknown."""
    for name, message in (
        ("shop_accepted_values", "5 distinct values, and 3 are accepted"),
        ("note_unique", "unknown: about"),
    ):
        page.goto(f"{url}?view=checks&checkDetail={name}")
        page.get_by_text(message).first.wait_for(timeout=60_000)
        page.wait_for_timeout(500)
        page.screenshot(path=Path(os.environ.get(SCREENSHOTS) or lab.folder) / f"check-{name}.png")


def assert_graph_is_shown(page: Any, lab: Lab, url: str) -> None:
    """Assert that the lineage graph shows the source, the partitions and the table's three assets."""
    page.goto(f"{url}/sales_partitions?view=lineage&lineageScope=neighbors")
    for kind in ("source", "partitions", "statistics", "frequencies", "histograms"):
        page.get_by_text(f"sales_{kind}", exact=True).first.wait_for(timeout=60_000)
    page.wait_for_timeout(1_000)  # The graph is laid out first, and then scrolls to its centre.
    page.screenshot(path=Path(os.environ.get(SCREENSHOTS) or lab.folder) / "graph.png")


def test_pages_show_assets_checks_and_pictures(lab: Lab, page: Any) -> None:
    """Pages in Dagster's UI show row counts, pictures, check results and the graph of a table's assets.

    Sensors run without being switched on. After a restart of the daemon, the sensor requests one run for a commit, and
    the page of the partition shows its new row count.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with ExitStack() as stack:
        stack.enter_context(process(lab.folder, "dagster-webserver", "-h", "127.0.0.1", "-p", str(port)))
        with process(lab.folder, "dagster-daemon", "run"):
            for table in ("sales", "visits-eu"):
                wait_for(f"the first version of {table}", 400, lambda table=table: reported_version(lab, table) == 1)
            # A run evaluates checks after it has reported the version.
            unfinished_runs = RunsFilter(statuses=[DagsterRunStatus.STARTED])
            wait_for("the end of the runs", 200, lambda: not lab.instance.get_runs(unfinished_runs))
        wait_for("the webserver", 60, lambda: answers(f"http://127.0.0.1:{port}/server_info"))
        assets = f"http://127.0.0.1:{port}/assets/sales"
        partition = f"{assets}/sales_partitions?view=partitions&partition={key_of(2)}"
        assert_page_shows(page, lab, partition, "partition", "2000")
        assert_page_shows(page, lab, f"{assets}/sales_statistics", "table", "6000")
        assert_checks_are_shown(page, lab, f"{assets}/sales_statistics")
        assert_graph_is_shown(page, lab, assets)

        lab.append(2, 5, seed=1, count=500)
        runs = lab.instance.get_runs_count()
        with process(lab.folder, "dagster-daemon", "run"):
            wait_for("the second version of sales", 300, lambda: reported_version(lab, "sales") == 2)
            wait_for("the run's end", 200, lambda: all(run.is_finished for run in lab.instance.get_runs()))
        assert lab.instance.get_runs_count() == runs + 1
        assert_page_shows(page, lab, partition, "partition-again", "2500")
