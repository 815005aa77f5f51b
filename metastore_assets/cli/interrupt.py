"""Ctrl-C and SIGTERM end the command, even while it waits for a store that does not answer."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

PATIENCE = 3.0
"""Seconds that an interrupted command has to clean up before it is ended."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heed_signals() -> None:
    """Let SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt, and see that one of them ends it.

    Python raises them once the main thread is back from whatever it waits in, which may be a network that is gone:
    clients of object stores leave the system to restart waits that a signal breaks off. Ending without cleaning up is
    safe: what was written that no version names, does not exist.
    """
    for number in _SIGNALS[1:]:
        signal.signal(number, _terminate)
    arrived, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_end, args=(arrived,), daemon=True).start()


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _end(arrived: int) -> NoReturn:
    while True:
        [number] = os.read(arrived, 1)
        if number in _SIGNALS:
            time.sleep(PATIENCE)
            # Where it is not imported there is no such folder; at the start of a command it would take time.
            if (scratch := sys.modules.get("metastore_assets.scratch")) is not None:
                scratch.remove_all()
            if number == signal.SIGINT:
                os.write(2, b"interrupted\n")
            os._exit(128 + number)
