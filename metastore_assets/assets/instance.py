"""The heartbeat of daemons of the Dagster instance that $DAGSTER_HOME names."""

import time

from dagster import DagsterInstance

_RECENT = 300.0
"""Seconds after which a daemon without a heartbeat counts as stopped, as in Dagster's UI."""


def seconds_since_heartbeat() -> float | None:
    """Return the seconds since the last heartbeat of any daemon; None if there was none for 5 minutes.

    Raises errors of Dagster if the instance or its storage of runs cannot be opened.
    """
    with DagsterInstance.get() as instance:
        instance.get_run_records(limit=1)
        heartbeats = instance.get_daemon_heartbeats().values()
        newest = max((heartbeat.timestamp for heartbeat in heartbeats), default=0.0)
    age = time.time() - newest
    return age if age < _RECENT else None
