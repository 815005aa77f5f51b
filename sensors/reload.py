"""Reloads of the code location, which its own sensors request after tables have changed."""

import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

from dagster import DagsterInstance, SensorEvaluationContext

from metastore_assets.messages import remove_secrets

_DELAY = 1.0
"""Seconds between a request and the reload, because the current process must first answer the tick. Further requests in
this time cause no further reload."""
_pending = threading.Lock()


def request_reload(context: SensorEvaluationContext) -> str:
    """Reload the code location, if its server can do that.

    The servers of `dagster dev` and `dagster code-server start` can reload.

    Returns:
        A message: the reload has begun, or what a user has to do.
    """
    origin = context.code_location_origin
    if origin is None:
        return "reload the code location"
    create_client = getattr(origin, "create_client", None)
    if create_client is None:
        return "Dagster's daemon reloads this code location within a minute; press Reload in the webserver"
    client = create_client()
    if _pending.acquire(blocking=False):
        threading.Thread(target=_reload_soon, args=(client, context.instance), daemon=True).start()
    return "the code location is being reloaded"


def _reload_soon(client: Any, instance: DagsterInstance) -> None:
    try:
        time.sleep(_DELAY)
    finally:
        _pending.release()
    try:
        client.reload_code(timeout=instance.code_server_reload_timeout)
    except Exception as error:  # noqa: BLE001 (the next tick checks what is loaded, and says what to do)
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        message = f"{moment} the code location could not be reloaded: {remove_secrets(str(error))}"
        sys.stderr.write(f"{message}\n")
