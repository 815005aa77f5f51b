"""Answers for people: tables, bars and charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from metastore_assets.cli.backfill_page import print_backfill, print_keys
from metastore_assets.cli.bars_page import print_bins, print_top
from metastore_assets.cli.checks_page import print_checks, print_suggestions
from metastore_assets.cli.filter_page import print_count, print_estimate, print_pruned
from metastore_assets.cli.output import Answer
from metastore_assets.cli.page import Column, Page, Part, Styled
from metastore_assets.cli.statistics_table import print_statistics
from metastore_assets.cli.values_page import (
    print_compacted,
    print_quantiles,
    print_rank,
    print_spreads,
    print_where,
)
from metastore_assets.cli.verdicts_page import print_checked, print_verified
from metastore_assets.pipeline.stages import stages_to_text
from metastore_assets.report import text

_PLAIN_BINS = 20


class TerminalOutput:
    """Tables for people. Where stdout is no terminal, nothing is coloured, cut or left out."""

    draws = True

    def __init__(self) -> None:
        self._page = Page()
        self.width = self._page.width
        """Cells of a line, or None for as many as it takes."""
        # Half as many bins as cells, so that bars of two or three cells fill most of a line.
        self.default_bins = _PLAIN_BINS if self.width is None else max(8, (self.width - 12) // 2)

    def tables(self, rows: Sequence[Answer]) -> None:
        """One line per table."""
        if not rows:
            self._page.line(Styled("no tables are configured", "dim"))
            return
        columns = [
            Column("table", style="bold"),
            Column("format"),
            *(Column(heading, right=True) for heading in ("rows", "partitions", "version")),
            *(Column(heading) for heading in ("snapshot", "published", "uri")),
        ]
        self._not_shown(
            self._page.fitting_grid(columns, list(map(_table_row, rows)), ["snapshot", "format", "partitions"])
        )

    def refreshed(self, result: Answer, *, every: bool = False) -> None:
        """One line per table; a dry run also names partitions, where they are few or `every` one is requested."""
        name, snapshot = Styled(result["table"], "bold"), _short(result["snapshot"])
        time = text.seconds(result["seconds"]) if "seconds" in result else ""
        if not result["published"]:
            news = Styled(f" is up to date at version {result['version']}", "green")
            self._page.line(name, news, Styled(f" (snapshot {snapshot}{time and ', '}{time})", "dim"))
            return
        if result.get("dry_run"):
            self._planned(result, every=every)
            return
        news = Styled(f" version {result['version']}", "green")
        self._page.line(name, news, f" of snapshot {snapshot} in {time}: {_changes(result)}")
        self._retyped(result)

    def backfill(self, result: Answer) -> None:
        """One line of what was done; of a plan nothing, for its lines are written already."""
        if not result.get("dry_run"):
            print_backfill(self._page, result)

    def failed(self, subject: Answer, message: str) -> None:
        """Nothing more than the line on stderr."""

    def statistics(self, answer: Answer, shapes: Mapping[str, Sequence[int]], chosen: bool = False) -> None:
        """A heading and one line per column; of chosen columns in several tables where one is too wide."""
        self._heading(answer)
        elsewhere = "--columns A,B or --json" if "version" in answer else "--json"
        print_statistics(self._page, answer["columns"], shapes, chosen, elsewhere)
        if chosen:
            print_spreads(self._page, answer["columns"])

    def partitions(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """One line per partition."""
        self._heading(subject)
        columns = [Column("partition", style="bold")]
        columns += [Column(heading, right=True) for heading in ("rows", "bytes", "fragments", "version")]
        self._page.grid(
            columns,
            [
                (
                    text.printable(row["partition"]),
                    text.number(row["row_count"]),
                    text.size(row["bytes"]),
                    text.number(row["fragments"]),
                    text.number(row["version"]),
                )
                for row in rows
            ],
        )

    def top(self, subject: Answer, values: Sequence[Answer]) -> None:
        """One line per value with a bar, then what is not among them."""
        self._column_heading(subject)
        print_top(self._page, subject, values)

    def histogram(self, subject: Answer, bins: Sequence[Answer]) -> None:
        """A line per bin, or a chart where there are many."""
        self._column_heading(subject)
        print_bins(self._page, subject["type"], bins)

    def quantiles(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """One line per quantile."""
        self._column_heading(subject)
        print_quantiles(self._page, subject["type"], rows)

    def rank(self, subject: Answer, answer: Answer) -> None:
        """One line."""
        self._column_heading(subject)
        print_rank(self._page, answer)

    def where(self, subject: Answer, rows: Sequence[Answer]) -> None:
        """One line per partition."""
        self._column_heading(subject)
        print_where(self._page, rows)

    def pruned(self, answer: Answer) -> None:
        """What is left, what it saves, and what has eliminated the rest."""
        print_pruned(self._page, answer)

    def estimated(self, answer: Answer) -> None:
        """One line."""
        print_estimate(self._page, answer)

    def counted(self, answer: Answer) -> None:
        """One line."""
        print_count(self._page, answer)

    def compacted(self, result: Answer) -> None:
        """One line."""
        print_compacted(self._page, result)

    def versions(self, rows: Sequence[Answer]) -> None:
        """One line per version, the newest first."""
        columns = [Column("version", right=True, style="bold"), *map(Column, ("snapshot", "committed", "published"))]
        columns += [Column(heading, right=True) for heading in ("rows", "partitions", "fragments", "bytes")]
        lines = [
            (
                text.number(row["version"]),
                _short(row["snapshot"]),
                _moment(row["committed_at"]),
                _moment(row["published_at"]),
                *(text.number(row[key]) for key in ("row_count", "partitions", "fragments")),
                text.size(row["bytes"]),
            )
            for row in rows
        ]
        self._not_shown(self._page.fitting_grid(columns, lines, ["committed", "bytes", "fragments", "partitions"]))

    def expired(self, result: Answer) -> None:
        """One line."""
        removed = f"{text.plural(result['versions'], 'version')} and {text.plural(result['files'], 'file')}"
        self._page.line(Styled(result["table"], "bold"), f": removed {removed} ({text.size(result['bytes'])})")

    def purged(self, result: Answer) -> None:
        """One line, and one for what could not go."""
        removed = f"{text.plural(result['versions'], 'version')} and {text.plural(result['files'], 'file')}"
        news = f": removed {removed} ({text.size(result['bytes'])}), published version {result['published']}"
        self._page.line(Styled(result["table"], "bold"), news)
        if result["unfinished"]:
            left = text.plural(result["unfinished"], "file")
            note = f"  {left} of refreshes that did not publish are among them; one that runs now begins again"
            self._page.line(note)
        if result["outdated"]:
            left = text.plural(result["outdated"], "profile")
            again = f"`metastore refresh {result['table']} --full`"
            note = f"  {left} stay with columns that the table has no more: run {again}, purge again"
            self._page.line(Styled(note, "yellow"))
        for place in result["not_reached"]:
            self._page.line(Styled(f"  not reached, look there yourself: {place}", "yellow"))

    def verified(self, result: Answer) -> None:
        """One line, and one for each difference."""
        print_verified(self._page, result)

    def answer(self, document: object, draw: Callable[[Page], None]) -> None:
        """Whatever is drawn."""
        draw(self._page)

    def checked(self, result: Answer) -> None:
        """One line, and the data on which a law does not hold."""
        print_checked(self._page, result)

    def checks(self, answer: Answer) -> None:
        """A heading, and a line for each check."""
        print_checks(self._page, answer)

    def suggested(self, answer: Answer) -> None:
        """YAML."""
        print_suggestions(self._page, answer)

    def _not_shown(self, headings: Sequence[str]) -> None:
        if headings:
            self._page.line(Styled(f"  not shown: {', '.join(headings)} (see --json)", "dim"))

    def _planned(self, plan: Answer, *, every: bool) -> None:
        name = Styled(plan["table"], "bold")
        changed, removed = plan["changed_partitions"], plan["removed_partitions"]
        reading = f"{text.plural(plan['fragments']['profiled'], 'fragment')} ({text.size(plan['bytes_to_read'])})"
        self._page.line(
            name,
            f" version {plan['version']} of snapshot {_short(plan['snapshot'])} would read {reading}: {_changes(plan)}",
        )
        for line in stages_to_text(plan.get("stages", ()), with_rules=every):
            self._page.line(Styled(f"  {line}", "dim"))
        self._retyped(plan)
        for column, outputs in plan.get("read_again", {}).items():
            reading = ", ".join(f"{output} of {text.plural(n, 'fragment')}" for output, n in outputs.items())
            self._page.line(Styled(f"  {text.printable(column)}: {reading} not stored, read again", "yellow"))
        for column, count in plan.get("may_read_again", {}).items():
            where = f"those of {text.plural(count, 'fragment')} that hold a value which comes to occur twice"
            self._page.line(
                f"  {text.printable(column)}: read again in {where}, for fingerprints do not tell values apart"
            )
        for sign, style, keys in (("*", "green", changed), ("-", "red", removed)):
            print_keys(self._page, keys, sign, style, every=every)

    def _retyped(self, result: Answer) -> None:
        for change in result.get("type_changes", ()):
            before, now = text.type_name(change["before"]), text.type_name(change["now"])
            reason = change["reason"] and f", because of {text.printable(change['reason'])}"
            self._page.line(Styled(f"  {text.printable(change['column'])}: {before} → {now}", "yellow"), reason or "")

    def _heading(self, answer: Answer) -> None:
        subject = answer["uri"] if "uri" in answer else answer["table"]
        partition = f" {answer['partition']}" if answer.get("partition") is not None else ""
        where = f" where {answer['where']}" if "where" in answer else ""
        kept = "version" in answer
        facts = [
            text.plural(answer["row_count"], "row"),
            *([f"version {answer['version']}"] if kept else []),
            f"snapshot {_short(answer['snapshot'])}",
        ]
        words, style = _CURRENT[answer["current"]] if kept else ("", "")
        self._page.line(
            Styled(text.printable(subject + partition + where), "bold"), "  " + ", ".join(facts), Styled(words, style)
        )

    def _column_heading(self, subject: Answer) -> None:
        facts = [text.plural(subject["value_count"], "value")]
        if subject["distinct_count"] is not None:
            distinct = text.estimate(text.number(subject["distinct_count"]), subject["distinct_count_guarantee"])
            facts.append(f"{distinct} distinct")
        if subject["null_count"]:
            facts.append(text.plural(subject["null_count"], "null"))
        if subject["nan_count"]:
            facts.append(f"{text.number(subject['nan_count'])} NaN")
        self._page.line(
            Styled(text.printable(subject["column"]), "bold"),
            Styled(f" {text.type_name(subject['type'])}", "cyan"),
            "  " + ", ".join(facts),
        )


_CURRENT = {True: (", current", "green"), False: (", outdated", "yellow"), None: (", perhaps outdated", "yellow")}


def _table_row(row: Answer) -> Sequence[Part]:
    never = row["version"] is None
    return (
        row["table"],
        row["format"] or text.ABSENT,
        *(text.number(row[key]) for key in ("row_count", "partitions", "version")),
        text.ABSENT if never else _short(row["snapshot"]),
        Styled("never refreshed", "yellow") if never else _moment(row["published_at"]),
        text.printable(row["uri"]),
    )


def _changes(result: Answer) -> str:
    fragments, partitions = result["fragments"], result["partitions"]
    counted = ", ".join(f"{fragments[key]:,} {key}" for key in ("added", "removed", "kept"))
    read = f", {fragments['profiled']:,} read" if fragments["profiled"] != fragments["added"] else ""
    removed = f", {partitions['removed']:,} removed" if partitions["removed"] else ""
    lists = result.get("lists") or {}
    counts = [f"{lists[key]:,} {key}" for key in ("added", "removed", "changed") if lists.get(key)]
    values = f"; listed values {', '.join(counts)}" if counts else ""
    of = f"{partitions['changed']:,} of {text.plural(partitions['total'], 'partition')} computed{removed}"
    return f"fragments {counted}{read}; {of}{values}"


def _short(snapshot: str) -> str:
    """A snapshot's id; of a digest its beginning, as much as tells states apart."""
    return text.printable(snapshot if len(snapshot) <= 20 else snapshot[:12])


def _moment(iso: str | None) -> str:
    """A time of UTC to the second."""
    return text.ABSENT if iso is None else iso[:19].replace("T", " ") + "Z"
