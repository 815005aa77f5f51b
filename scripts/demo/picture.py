"""The picture in README.md, from the output of the demo:

FORCE_COLOR=1 make demo | .venv/bin/python -m scripts.demo.picture docs/demo.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

_WIDTH = 122
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def picture(output: str) -> str:
    """Return an SVG of parts 1 to 3 of the demo's output and of the table of `metastore show`.

    It loads no fonts.
    """
    parts = re.split(r"(?m)^(?=(?:\x1b\[1m)?[1-9]\. )", output)
    shown_parts = [part for part in parts if re.match(r"(?:\x1b\[1m)?[123]\. ", part)]
    table = next(part for part in re.split(r"(?m)^(?=.*\$ metastore)", parts[-1]) if "$ metastore show" in part)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text.from_ansi("\n".join(part.strip("\n") + "\n" for part in [*shown_parts, table])), soft_wrap=True)
    return _FONTS.sub("", console.export_svg(title="make demo", theme=DIMMED_MONOKAI))


def main() -> None:
    """Read the demo's output from stdin, and write the picture to the path in the first argument.

    Lines about progress are left out of the picture.
    """
    lines = [line for line in sys.stdin if not re.search(r" … .*\d s$", line)]
    Path(sys.argv[1]).write_text(picture("".join(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
