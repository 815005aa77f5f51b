"""A backfill, before and after, for people."""

from __future__ import annotations

from collections.abc import Sequence

from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Page, Styled
from metastore_assets.report import text

_FEW = 10
"""Up to so many partitions are named one by one, where nobody asks for all."""


def print_backfill_plan(page: Page, plan: Answer, *, every: bool) -> None:
    """What would be done, summarised; the partitions where these are few, or `every` one of them is asked for."""
    name = Styled(plan["table"], "bold")
    version = f"version {plan['version']}" if plan["version"] else "no version yet"
    page.line(name, f" {version}, snapshot {text.printable(plan['snapshot'][:20])}: {_what(plan)}")
    if plan["continues"]:
        done = text.plural(plan["continues"], "partition")
        page.line(f"  goes on with an interrupted backfill, which has done {done} (--restart: do these again)")
    if not plan["chunks"]:
        return
    reading = f"{text.plural(plan['fragments'], 'fragment')} ({text.size(plan['bytes'])})"
    each = ", each a version" if plan["chunks"] > 1 else ""
    takes = "" if plan["seconds"] is None else f", about {_time(plan['seconds'])}"
    page.line(f"  reads {reading} in {text.plural(plan['chunks'], 'chunk')}{each}{takes}")
    besides = plan["besides"]
    others = f"{text.plural(besides['partitions'], 'partition')} that you did not choose"
    size = f"{text.plural(besides['fragments'], 'fragment')}, {text.size(besides['bytes'])}"
    if not plan["publishes"]:
        page.line(
            Styled(f"  publishes nothing: what is read is kept until {others} are read too ({size} left)", "yellow")
        )
    elif besides["partitions"]:
        page.line(Styled(f"  of these, {size} are of {others}: a version describes the whole table", "yellow"))
    print_keys(page, plan["keys"], "*", "green", every=every)


def print_keys(page: Page, keys: Sequence[str], sign: str, style: str, *, every: bool) -> None:
    """Print one line for each key; the first and the last one where there are many, unless `every` one is requested."""
    is_short = every or len(keys) <= _FEW
    for key in keys if is_short else keys[:1]:
        page.line(Styled(f"  {sign} {text.printable(key)}", style))
    if not is_short:
        page.line(Styled(f"    … {len(keys) - 2:,} more (-v names all)", "dim"))
        page.line(Styled(f"  {sign} {text.printable(keys[-1])}", style))


def print_backfill(page: Page, result: Answer) -> None:
    """One line."""
    name = Styled(result["table"], "bold")
    if not result["chunks"]:
        page.line(name, Styled(" nothing to do", "green") if result["done"] else Styled(" nothing was done", "yellow"))
        return
    versions = ", ".join(map(str, result["versions"]))
    published = f"version{'s' * (len(result['versions']) > 1)} {versions}" if versions else "no version published"
    read = f"{text.plural(result['fragments'], 'fragment')} ({text.size(result['bytes'])})"
    done = f"{text.plural(result['partitions'], 'partition')} in {text.plural(result['chunks'], 'chunk')}"
    verdict = Styled(" done", "green") if result["done"] else Styled(_undone(result), "yellow")
    page.line(name, verdict, f" in {text.seconds(result['seconds'])}: {done}, {read} read, {published}")


def _undone(result: Answer) -> str:
    return " stopped" if "error" in result else " read, and not published"


def _what(plan: Answer) -> str:
    of = f"{plan['partitions']:,} of {text.plural(plan['total'], 'partition')}"
    if not plan["chunks"]:
        chosen = text.plural(plan["chosen"], "chosen partition")
        what = {"missing": "is missing", "stale": "is out of date"}.get(plan["mode"], "is to be done")
        return f"nothing to do: of {chosen}, none {what}"
    kinds = {"missing": plan["missing"], "out of date": plan["stale"], "read again": plan["again"]}
    return f"{of} to do ({', '.join(f'{count:,} {kind}' for kind, count in kinds.items() if count)})"


def _time(seconds: float) -> str:
    return text.seconds(seconds) if seconds < 5400 else f"{seconds / 3600:.1f} h"
