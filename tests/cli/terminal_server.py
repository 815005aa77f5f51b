"""A program that runs commands on terminals.

The program forks a child for each command, so that imports, which take long, run once.

    python -m tests.cli.terminal_server MODULE...

The modules are imported once. Each line of stdin is a JSON object with `arguments`, `folder`, `environment` and the
path of a `terminal`. The program prints the exit status of each command; it is negative if a signal ended the command.
"""

import importlib
import json
import os
import sys

from metastore_assets.cli import main


def _run(request: dict[str, object]) -> None:
    """Run the command of a request on its terminal, and exit."""
    terminal = os.open(str(request["terminal"]), os.O_RDWR | os.O_NOCTTY)
    for descriptor in range(3):
        os.dup2(terminal, descriptor)
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        setattr(sys, name, open(descriptor, mode))  # noqa: SIM115 (open until the process ends)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(dict(request["environment"]))  # type: ignore[call-overload]
    sys.argv = ["metastore", *request["arguments"]]  # type: ignore[misc]
    main()


for name in sys.argv[1:]:
    importlib.import_module(name)
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        _run(json.loads(line))
    sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
    sys.stdout.flush()
