"""Which output a command prints to."""

from __future__ import annotations

from metastore_assets.cli.output import JsonOutput, Output


def make_output(as_json: bool) -> Output:
    """The output that was asked for."""
    if as_json:
        return JsonOutput()
    from metastore_assets.cli.terminal import TerminalOutput

    return TerminalOutput()
