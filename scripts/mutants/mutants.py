"""The mutants: deliberate mistakes, each a snippet of the code and its replacement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class SnippetNotFoundError(Exception):
    """Raised if the code does not contain a mutant's snippet exactly once.

    The mutant must be adapted.
    """


@dataclass(frozen=True)
class Mutant:
    """A deliberate mistake in the code."""

    name: str
    module: str
    """A module of `metastore_assets.produce`, without its suffix."""
    snippet: str
    replacement: str

    def apply(self, package: Path) -> None:
        """Make the mistake in a copy of the package.

        Raises:
            SnippetNotFoundError: If the module does not contain the snippet exactly once.
        """
        path = package / "produce" / f"{self.module}.py"
        text = path.read_text()
        if text.count(self.snippet) != 1:
            raise SnippetNotFoundError(
                f"{self.name!r}: {path.name} has {text.count(self.snippet)} times what is to be replaced, not once:\n"
                f"{self.snippet}\nAdapt the mutant in {Path(__file__).name}."
            )
        path.write_text(text.replace(self.snippet, self.replacement))


MUTANTS = (
    Mutant(
        "no augmentation: feeders without an update are not read",
        "inputs",
        "return pl.concat([upserts, self.previous(untouched_keys)]) if untouched_keys.height else upserts",
        "return upserts",
    ),
    Mutant(
        "old key-mappings are not deleted",
        "run_produce",
        "sets = source_key.semi(new, changed_sources)",
        "sets = source_key.semi(pl.concat([new, removed_pairs]), changed_sources)",
    ),
    Mutant(
        "stale key-mapping when Produce emits nothing",
        "run_produce",
        "tombstones = source_key.anti(changed_sources, new)",
        "tombstones = source_key.anti(changed_sources, new).clear()",
    ),
    Mutant(
        "every row of a new key is typed Add",
        "apply_instructions",
        'first = group.changes() & ~pl.col("_was")',
        'first = ~pl.col("_was")',
    ),
    Mutant(
        "any port empty: no call",
        "run_produce",
        "    used_sources = pl.concat([port[SOURCE] for port in ports]).unique().sort()\n",
        "    every = set.intersection(*(set(port[SOURCE]) for port in ports))\n"
        "    ports = [port.filter(pl.col(SOURCE).is_in(list(every))) for port in ports]\n"
        "    used_sources = pl.concat([port[SOURCE] for port in ports]).unique().sort()\n",
    ),
    Mutant(
        "the update carries changed rows only",
        "apply_instructions",
        "before, now = group.semi(previous, touched_keys), group.semi(content, touched_keys)",
        "before, now = group.semi(previous, touched_keys), task.dataset.run_schema.unit.semi(content, instructions)",
    ),
    Mutant(
        "the affected set misses old targets",
        "apply_instructions",
        "touched_keys = group.distinct(instructions)",
        "touched_keys = group.distinct(instructions.filter(~pl.col(TOMBSTONE)))",
    ),
    Mutant(
        "what a source key gave before stays in the content",
        "run_produce",
        "content.add(_content(task, outputs, removed_pairs))",
        "content.add(_content(task, outputs, removed_pairs.clear()))",
    ),
    Mutant(
        "outputs with equal keys are a set",
        "run_produce",
        "content.add(_content(task, outputs, removed_pairs))",
        "content.add(_content(task, outputs.unique(maintain_order=True), removed_pairs))",
    ),
    Mutant(
        "sums do not take away what was",
        "sums",
        "return [(current, 1), (feeder.previous_rows(changed_rows), -1)]",
        "return [(current, 1)]",
    ),
    Mutant(
        "of several runs the oldest wins",
        "dataset",
        "np.minimum.reduceat",
        "np.maximum.reduceat",
    ),
    Mutant(
        "a merge drops what says that a unit is gone too early",
        "compaction",
        "retains_tombstones=bool(shard.runs)",
        "retains_tombstones=False",
    ),
    Mutant(
        "a merge of the newest runs of a shard drops it too early",
        "compaction",
        "retains_tombstones=bool(older_runs)",
        "retains_tombstones=False",
    ),
    Mutant(
        "unchanged groups are compared by their sizes",
        "apply_instructions",
        "return group.anti(equal.select(group.columns), differ)",
        "return equal.select(group.columns)",
    ),
    Mutant(
        "source keys are in their feeder's order",
        "inputs",
        "return Order.of(feeder.rows.key.names)\n",
        "return feeder.rows.order\n",
    ),
    Mutant(
        "previous rows are handed on with those of unchanged keys",
        "inputs",
        "return self.rows.order.semi(self.replaced, keys)[:, self.rows.schema.names]",
        "return self.replaced[:, self.rows.schema.names]",
    ),
    Mutant(
        "keys are looked up by their first column",
        "lookup",
        "return candidates if self._is_exact else self._order.semi(candidates, self._keys)",
        "return candidates",
    ),
    Mutant(
        "a row that is being replaced is no example for its key",
        "apply_instructions",
        "apply_preserve(task, written_rows, previous)",
        "apply_preserve(task, written_rows, task.dataset.run_schema.unit.anti(previous, instructions))",
    ),
    Mutant(
        "the version forgets which numbers were given",
        "node_step",
        "counter = before.counter + content.novel",
        "counter = before.counter",
    ),
    Mutant(
        "numbers start again with every piece of a range",
        "apply_instructions",
        "replace(task, counter=counter)",
        "task",
    ),
    Mutant(
        "numbers start again with every range",
        "dataset_step",
        "return [replace(task, counter=counter) for task, counter in zip(tasks, counters, strict=True)]",
        "return tasks",
    ),
    Mutant(
        "the rows of a new key are no examples for each other",
        "preserve",
        "later &= ~written_rows.select(group.changes()).to_series()",
        "later &= False",
    ),
    Mutant(
        "the example of a new key is its first row as it was before the hook",
        "preserve",
        "firsts = group.semi(result, novel).select(names)",
        "firsts = group.semi(written_rows.filter(~later), novel).select(names)",
    ),
    Mutant(
        "totals below zero vanish in a merge",
        "dataset",
        "pl.any_horizontal(pl.col(name) != 0 for name in run_schema.amounts)",
        "pl.any_horizontal(pl.col(name) > 0 for name in run_schema.amounts)",
    ),
    Mutant(
        "of two feeders, all totals are made of the one that has changed",
        "node_step",
        "if is_small and len(contents) == len(stage.feeders) else None",
        "if is_small and contents else None",
    ),
    Mutant(
        "keys that lack one of the feeder's are taken for distinct",
        "sums",
        "if len(frames) == 1 and set(stage.input.key.names) <= set(stage.node.key):",
        "if len(frames) == 1:",
    ),
    Mutant(
        "a total that comes to zero stays",
        "sums",
        "if not all((totals[name] != 0).all() for name in run_schema.amounts):",
        "if False:",
    ),
    Mutant(
        "hot key: every piece of a key that was there begins with Add",
        "hot_keys",
        "pl.lit(not self._existed and not self._rows_reported)",
        "pl.lit(not self._rows_reported)",
    ),
    Mutant(
        "hot key: unchanged keys are compared by their values alone",
        "hot_keys",
        "same is not None and not same.differ and same.is_even",
        "same is not None and not same.differ",
    ),
    Mutant(
        "hot key: the example is that of the last piece",
        "hot_keys",
        "example = example if example.height else written_rows[:1]",
        "example = written_rows[:0]",
    ),
    Mutant(
        "hot key: a shard ends within a key",
        "compaction",
        " or continues_key(last, frame, run_schema)",
        "",
    ),
)
