"""Write and profile adversarial tables, and print unexpected results.

The command is `python -m scripts.adversarial [TEXT]`. With TEXT, only the cases with this text in their name are tried.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from scripts.adversarial.judge import judge, selected


def main() -> int:
    """Judge the cases.

    Return the exit status: 1 if a case does not have its expected outcome.
    """
    parser = argparse.ArgumentParser(prog="python -m scripts.adversarial", description=__doc__)
    parser.add_argument("only", nargs="?", default="", metavar="TEXT", help="cases whose name has this in it")
    with tempfile.TemporaryDirectory() as folder:
        verdicts = judge(selected(parser.parse_args().only), Path(folder))
    failures = [verdict for verdict in verdicts if not verdict.as_expected]
    for verdict in failures:
        print(f"{verdict.case.name}: {verdict.outcome}: {verdict.detail}")
    print(f"{len(verdicts) - len(failures)} of {len(verdicts)} as expected")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
