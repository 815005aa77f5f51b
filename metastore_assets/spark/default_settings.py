"""Spark settings that the Metastore uses unless a user sets them."""

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
    # Python workers import nothing from their working folder.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
"""Default settings for any master."""
LOCAL_SETTINGS = {
    **SETTINGS,
    # With the loopback address, Spark does not look up the host's name, which may take seconds.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Default settings for a local master."""
_MEMORY_LIMIT = "spark.executor.pyspark.memory"
# That setting limits a worker's address space, which includes memory that an allocator retains. With these settings,
# allocators return memory immediately. Measured: a fragment of 2.2 GB in 52 columns needs 1.2 GB of address space
# instead of 3.5 GB, and takes 8 % longer.
_NO_RETAINED_MEMORY = {
    "spark.executorEnv._RJEM_MALLOC_CONF": "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,narenas:1",
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_ARENA_MAX": "1",
}


def normalize_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Convert a user's settings to strings.

    If they limit the workers' memory, add settings that free memory early.

    Settings without a value (None) are left out.
    """
    chosen_settings = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
        if value is not None
    }
    return {**_NO_RETAINED_MEMORY, **chosen_settings} if _MEMORY_LIMIT in chosen_settings else chosen_settings
