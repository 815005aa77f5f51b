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
_PAUSE = 0.05
"""Seconds until an interrupt that was ignored is raised again."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install_signal_handlers() -> None:
    """Let SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt, and see that one of them ends it.

    Python raises them once the main thread is back from whatever it waits in, which may be a network that is gone:
    clients of object stores leave the system to restart waits that a signal breaks off. Ending without cleaning up is
    safe: what was written that no version names, does not exist.
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
    """Let an interrupt be raised later that came where Python ignores errors, as in what it calls around a fork."""
    error = unraisable.exc_value
    if isinstance(error, KeyboardInterrupt):
        number = signal.Signals.SIGINT
    elif isinstance(error, SystemExit) and error.code in [128 + own for own in _SIGNALS]:
        number = signal.Signals(int(error.code) - 128)
    else:
        sys.__unraisablehook__(unraisable)
        return
    # Not from here: it would be raised in here, and ignored as well.
    threading.Thread(target=_interrupt_later, args=(number,), daemon=True).start()


def _interrupt_later(number: signal.Signals) -> None:
    time.sleep(_PAUSE)
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)  # A signal, which ends what the thread waits for.


def _end(arrived: int) -> NoReturn:
    while True:
        [number] = os.read(arrived, 1)
        if number in _SIGNALS:
            time.sleep(PATIENCE)
            # Where it is not imported there is no such folder; at the start of a command it would take time.
            folders = sys.modules.get("metastore_assets.storage.temporary_folders")
            if folders is not None:
                folders.remove_own_folders()
            if number == signal.SIGINT:
                os.write(2, b"interrupted\n")
            os._exit(128 + number)
