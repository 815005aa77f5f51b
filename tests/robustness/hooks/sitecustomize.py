"""Hooks in refresh processes, which log changes of files and stop a process at a given change.

Python imports this module from PYTHONPATH when it starts, in the driver and in the Spark workers. The module wraps the
functions of `os` that make files appear and disappear below a root. A step has a moment and a kind of file, such as
`before versions/N.json` or `after versions/N.json`. At `before`, the content of the file is still in a hidden file.

The folder `$METASTORE_TEST_STEPS` holds `rules.json`:

    {"root": "/folder", "driver": 123, "kill": "before versions/N.json", "nth": 1}
    {"root": "/folder", "meet": "before versions/N.json", "count": 2}

`kill` ends the driver with SIGKILL when the step is reached for the nth time. Before the kill, the hidden file is
truncated to half its length. A worker that reached the step is killed too, because it would end with the driver's JVM.
`meet` lets processes wait for each other. Every step is logged as a line of the file `log`.
"""

import json
import os
import re
import signal
import time

_FOLDER = os.environ.get("METASTORE_TEST_STEPS")
_WAIT_SECONDS = 60


def _kind(path, root):
    """Return the kind of a file below `root`, such as `fragments/*.statistics.parquet`.

    Return None for hidden files and files elsewhere.
    """
    below = os.path.relpath(path, root)
    if below.startswith("..") or os.path.basename(below).startswith("."):
        return None
    kind = re.sub(r"[0-9a-f]{32}", "*", below.partition("/")[2])
    return re.sub(r"versions/\d+", "versions/N", kind)


def _step(moment, path, hidden_file=None):
    """Log a step, such as `before fragments/*.statistics.parquet`.

    The step consists of `moment` and the kind of the file `path`.

    If the rules name this step, kill the driver and this process, or wait until other processes reach it. Before a
    kill, half of `hidden_file` is cut off.
    """
    try:
        with open(os.path.join(_FOLDER, "rules.json"), encoding="utf-8") as file:
            rules = json.load(file)
    except FileNotFoundError:
        return
    kind = _kind(path, rules["root"])
    if kind is None:
        return
    step = f"{moment} {kind}"
    log = os.path.join(_FOLDER, "log")
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{step}\n")
    with open(log, encoding="utf-8") as file:
        times = file.read().splitlines().count(step)
    if step == rules.get("kill") and times == rules.get("nth", 1):
        if hidden_file is not None:
            os.truncate(hidden_file, os.path.getsize(hidden_file) // 2)
        os.kill(rules["driver"], signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    if step == rules.get("meet"):
        _meet(log, step, rules["count"])


def _meet(log, step, count):
    end = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < end:
        with open(log, encoding="utf-8") as file:
            if file.read().splitlines().count(step) >= count:
                return
        time.sleep(0.005)


def _around(call, moments, *, hides):
    def wrapped(*arguments, **options):
        path = os.fspath(arguments[-1])
        _step(moments[0], path, arguments[0] if hides else None)
        result = call(*arguments, **options)
        _step(moments[1], path)
        return result

    return wrapped


if _FOLDER:
    os.replace = _around(os.replace, ("before", "after"), hides=True)
    os.link = _around(os.link, ("before", "after"), hides=True)
    os.unlink = _around(os.unlink, ("before removing", "after removing"), hides=False)
