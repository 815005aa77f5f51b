"""What the Metastore sets of Spark where a user does not."""

from __future__ import annotations

from collections.abc import Mapping

SETTINGS = {
    "spark.master": "local[*]",
    "spark.app.name": "metastore",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # One thread per task: Spark already runs as many tasks as there are cores.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    # Python workers import nothing from the folder that they are started in.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
"""On any master."""
LOCAL_SETTINGS = {
    **SETTINGS,
    # The loopback address spares a look-up of the host's name, which may take seconds.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""On one on this machine."""
_MEMORY_LIMIT = "spark.executor.pyspark.memory"
# That setting limits the address space of a worker, and what an allocator retains counts: give it back at once.
# Measured: a fragment of 2.2 GB in 52 columns needs 1.2 GB of address space with this, 3.5 GB without; 8 % slower.
_LEAN_MEMORY = {
    "spark.executorEnv._RJEM_MALLOC_CONF": "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,narenas:1",
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_ARENA_MAX": "1",
}


def normalize_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """A user's settings as the texts that Spark takes, with what one of them needs besides."""
    chosen = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
    return {**_LEAN_MEMORY, **chosen} if _MEMORY_LIMIT in chosen else chosen
