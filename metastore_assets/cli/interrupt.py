"""Signal handlers that end the command on Ctrl-C and SIGTERM, even while it waits for a store."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

_CLEANUP_TIMEOUT = 3.0
"""Seconds that an interrupted command has to clean up before the process ends."""
_PAUSE = 0.05
"""Seconds until an interrupt that Python ignored is raised again."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install_signal_handlers() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit.

    Ctrl-C still raises KeyboardInterrupt.

    If the process still runs three seconds after Ctrl-C, SIGTERM or SIGHUP, a thread ends it.
    """
    for number in _SIGNALS[1:]:
        signal.signal(number, _terminate)
    sys.unraisablehook = _raise_again
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # The main thread may never raise the exception: clients of object stores let the system restart interrupted waits.
    # Ending without cleaning up is safe, because readers see a file only once a version references it.
    threading.Thread(target=_end_process, args=(reader,), daemon=True).start()


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _raise_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Send a signal again to the main thread if Python has ignored the exception that the signal raised.

    Python calls this hook for every exception that it ignores, for example in a callback of a fork. Exceptions that no
    signal raised are reported as usual.
    """
    error = unraisable.exc_value
    if isinstance(error, KeyboardInterrupt):
        number = signal.Signals.SIGINT
    elif isinstance(error, SystemExit) and error.code in [128 + number for number in _SIGNALS]:
        number = signal.Signals(int(error.code) - 128)
    else:
        # This function is a hook for all ignored exceptions.
        sys.__unraisablehook__(unraisable)
        return
    # Use another thread: an exception raised here would be ignored as well.
    threading.Thread(target=_interrupt_later, args=(number,), daemon=True).start()


def _interrupt_later(number: signal.Signals) -> None:
    time.sleep(_PAUSE)
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)  # A signal also ends the wait of the thread.


def _end_process(reader: int) -> NoReturn:
    """Wait for a signal, give the main thread three seconds to clean up, and end the process.

    Args:
        reader: The descriptor of a pipe to which Python writes the number of each signal.
    """
    while True:
        [number] = os.read(reader, 1)
        if number in _SIGNALS:
            time.sleep(_CLEANUP_TIMEOUT)
            # Without the module there are no such folders. Importing it at the start would slow every command down.
            if "metastore_assets.storage.temporary_folders" in sys.modules:
                from metastore_assets.storage.temporary_folders import remove_process_folders

                remove_process_folders()
            if number == signal.SIGINT:
                os.write(2, b"interrupted\n")
            os._exit(128 + number)
