"""What the Metastore sets of Spark where a user does not."""

from __future__ import annotations

SETTINGS = {
    "spark.master": "local[*]",
    "spark.app.name": "metastore",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # One thread per task: Spark already runs as many tasks as there are cores.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
}
"""On any master."""
LOCAL_SETTINGS = {
    **SETTINGS,
    # The loopback address spares a look-up of the host's name, which may take seconds.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""On one in this process."""
