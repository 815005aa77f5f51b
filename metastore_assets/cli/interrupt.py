"""End the command on Ctrl-C and SIGTERM, even while it waits for a store that does not respond."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

PATIENCE = 3.0
"""Seconds for an interrupted command to clean up before it is ended."""
_PAUSE = 0.05
"""Seconds until an ignored interrupt is raised again."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install_signal_handlers() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt, and enforce that they end the
    command.

    Python raises these exceptions when the main thread returns from its wait, which may never happen: clients of
    object stores let the system restart interrupted waits. Ending without cleaning up is safe, because a file exists
    only once a version references it.
    """
    for number in _SIGNALS[1:]:
        signal.signal(number, _terminate)
    sys.unraisablehook = _raise_again
    arrived, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_end, args=(arrived,), daemon=True).start()


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again after a moment, if Python ignored it, as in callbacks around a fork."""
    error = unraisable.exc_value
    if isinstance(error, KeyboardInterrupt):
        number = signal.Signals.SIGINT
    elif isinstance(error, SystemExit) and error.code in [128 + own for own in _SIGNALS]:
        number = signal.Signals(int(error.code) - 128)
    else:
        sys.__unraisablehook__(unraisable)
        return
    # Use another thread: an exception raised here would be ignored as well.
    threading.Thread(target=_interrupt_later, args=(number,), daemon=True).start()


def _interrupt_later(number: signal.Signals) -> None:
    time.sleep(_PAUSE)
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)  # A signal also ends the wait of the thread.


def _end(arrived: int) -> NoReturn:
    while True:
        [number] = os.read(arrived, 1)
        if number in _SIGNALS:
            time.sleep(PATIENCE)
            # If the module is not imported there are no such folders; importing it at the start would take time.
            if "metastore_assets.storage.temporary_folders" in sys.modules:
                from metastore_assets.storage.temporary_folders import remove_process_folders

                remove_process_folders()
            if number == signal.SIGINT:
                os.write(2, b"interrupted\n")
            os._exit(128 + number)
