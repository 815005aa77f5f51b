"""An interrupt is raised later if it arrives where Python ignores errors.

An example is a callback of `os.fork`.
"""

from __future__ import annotations

import subprocess

import pytest

from metastore_assets.startup import python_command

PROGRAM = """
import os, signal, sys, time
from metastore_assets.cli.interrupt import install_signal_handlers

signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell may have started the tests with SIGINT ignored.
install_signal_handlers()

def arrive():
    signal.raise_signal(int(sys.argv[1]))
    time.sleep(0)

os.register_at_fork(after_in_parent=arrive)
try:
    child = os.fork()
    if child == 0:
        os._exit(0)
    time.sleep(60)
except BaseException as error:
    print(type(error).__name__, getattr(error, "code", None))
"""


@pytest.mark.parametrize(("number", "expected_output"), [(2, "KeyboardInterrupt None"), (15, "SystemExit 143")])
def test_an_interrupt_around_a_fork_is_raised(number: int, expected_output: str) -> None:
    done = subprocess.run(python_command("-c", PROGRAM, str(number)), capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (expected_output, "", 0)
