"""What `frequencies: auto` means for a column: listed, or estimated; and how one that is `repeated` is kept: by lists,
or by fingerprints. CardinalityMode once, from how many distinct values there are among how many, and changed only with
hysteresis.

A column is estimated with more than FREQUENCY_LIMIT distinct values, or when more than half of more than
NEAR_UNIQUE_FROM values are distinct. It is listed again only when there are at most half as many distinct values, and
they repeat four times on average (or are few). So a table that hovers about a threshold stays what it is. Fingerprints
are for columns that hardly repeat, however many values they have: the same thresholds but for FREQUENCY_LIMIT.

Distinct values are counted by merged sketches, which are functions of the sets of values: whoever publishes the same
fragments after the same version decides the same. Turning to *estimated* takes effect at once, for that needs no
reading; turning to *listed* with the next commit, for its plan has to say what is read again. Fingerprints likewise:
they follow from lists.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import pyarrow as pa

from metastore_assets.config import FREQUENCY_LIMIT, NEAR_UNIQUE_FROM, CardinalityMode, ResolvedPolicy, TableConfig
from metastore_assets.pipeline.cardinality import (
    AT_ONCE,
    NOTHING,
    CardinalityEstimate,
    estimate_cardinality,
    table_cardinality,
    together,
    with_sketch,
)
from metastore_assets.pipeline.column_spec import parse_column_spec
from metastore_assets.pipeline.engine import Engine
from metastore_assets.pipeline.plan import Plan, holds
from metastore_assets.pipeline.profile_spec import ProfileSpec, SpecCompatibility, table_profile_spec
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import read_counts
from metastore_assets.store.manifest import Decision, FragmentEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.values.types import type_class

_OVERESTIMATE = 1.1
"""By how much a sketch overestimates distinct values at most, and more: see `distinct`."""


_HELD_AS = {"estimated": "estimated", "fingerprinted": "prints"}
"""What signatures call what is decided."""


def why_estimated(distinct: int, values: int) -> str | None:
    """Why a column with so many distinct values is estimated; None when it is not."""
    if distinct > FREQUENCY_LIMIT:
        return f"about {distinct:,} distinct values, more than {FREQUENCY_LIMIT:,}"
    if values > NEAR_UNIQUE_FROM and 2 * distinct > values:
        return f"about {distinct:,} of {values:,} values are distinct: they hardly repeat"
    return None


def why_listed(distinct: int, values: int) -> str | None:
    """Why a column that was estimated is listed again; None when it is not."""
    if 2 * distinct <= FREQUENCY_LIMIT and (2 * values <= NEAR_UNIQUE_FROM or 4 * distinct <= values):
        return f"about {distinct:,} distinct values among {values:,}: few enough to be listed"
    return None


def why_fingerprinted(distinct: int, values: int) -> str | None:
    """Why a repeated column with so many distinct values is kept by fingerprints; None when it is not."""
    if values > NEAR_UNIQUE_FROM and 2 * distinct > values:
        return f"about {distinct:,} of {values:,} values are distinct: few of them can occur twice"
    return None


def why_not_fingerprinted(distinct: int, values: int) -> str | None:
    """Why a column that was kept by fingerprints is listed; None when it is not."""
    if 2 * values <= NEAR_UNIQUE_FROM or 4 * distinct <= values:
        return f"about {distinct:,} distinct values among {values:,}: they repeat, so that lists are shorter"
    return None


def _why_not_listed(policy: ResolvedPolicy, own: CardinalityEstimate) -> str | None:
    why = why_fingerprinted if policy.frequencies == "repeated" else why_estimated
    return why(own.distinct, own.values)


def _otherwise(policy: ResolvedPolicy) -> CardinalityMode:
    """What a column is that is not listed."""
    return "fingerprinted" if policy.frequencies == "repeated" else "estimated"


def recorded_resolutions(version: Version, table: TableConfig) -> dict[str, CardinalityMode]:
    """What a version has decided, by field id of the columns whose policy is open: what it does not name is listed."""
    leaves = table_profile_spec(version.schema, table).unresolved
    return {leaf: version.decisions[leaf].frequencies if leaf in version.decisions else "enumerated" for leaf in leaves}


def planned_resolutions(
    base: Version, schema: pa.Schema, table: TableConfig, store: ObjectStore, *, moved_on: bool
) -> dict[str, CardinalityMode]:
    """What `auto` means in the version after `base`, as far as is known before anything is read.

    `moved_on`: whether the table has changed since, so that it may be decided anew.
    """
    held = [parse_column_spec(text) for text in base.specs[base.spec_id].values()]
    states = {leaf: own.state(leaf) for own in held if own is not None for leaf in own.values}
    resolved: dict[str, CardinalityMode] = {}
    told: dict[str, CardinalityEstimate] | None = None
    spec = table_profile_spec(schema, table)
    policies = {leaf.field_id: policy for leaf, policy in spec.leaves}
    for leaf in spec.unresolved:
        policy, state, decision = policies[leaf], states.get(leaf), base.decisions.get(leaf)
        if state == "enumerated":
            resolved[leaf] = "enumerated"
        elif state == _HELD_AS[_otherwise(policy)] and decision is not None:
            why = why_not_fingerprinted if policy.frequencies == "repeated" else why_listed
            again = moved_on and why(decision.distinct, decision.values) is not None
            resolved[leaf] = "enumerated" if again else _otherwise(policy)
        elif state is not None:
            # The policy was another: what is known of the table decides what has to be read.
            told = table_cardinality(store, base.files) if told is None else told
            resolved[leaf] = _otherwise(policy) if _why_not_listed(policy, told.get(leaf, NOTHING)) else "enumerated"
    return resolved


def resolve_auto_policies(
    engine: Engine,
    store: ObjectStore,
    table: TableConfig,
    plan: Plan,
    fragments: Mapping[str, FragmentEntry],
) -> Plan:
    """The plan with all decided that was open, now that each of its fragments (by id) has a profile."""
    open_ = {leaf.field_id for leaf, policy in plan.spec.leaves if policy.is_enumerated} & plan.spec.open
    open_ &= plan.spec.valued
    if not open_:
        return plan
    before = table_cardinality(store, plan.base.files) if plan.base is not None else {}
    added = set(plan.added)
    entries = [fragments[own] for own in plan.added]
    doubtful = _doubtful(store, plan.spec, open_, before, entries) if len(entries) <= AT_ONCE else open_
    came = estimate_cardinality(engine, store, doubtful, entries) if doubtful else {}
    read = [fragments[own.id] for own in plan.to_profile if own.id not in added]
    again: dict[str, CardinalityEstimate] | None = None
    resolved: dict[str, CardinalityMode] = {}
    for leaf, policy in plan.spec.leaves:
        if leaf.field_id not in open_:
            if leaf.field_id in plan.spec.open and not policy.is_enumerated:
                resolved[leaf.field_id] = _otherwise(policy)
            continue
        if leaf.field_id not in doubtful:
            resolved[leaf.field_id] = "enumerated"
            continue
        base, new = before.get(leaf.field_id, NOTHING), came.get(leaf.field_id, NOTHING)
        if base.type_class is None or base.type_class != type_class(leaf.type).name:
            # A column that the published version does not know: what was read again for its sake counts as well.
            again = estimate_cardinality(engine, store, open_, read) if again is None else again
            new, base = together([new, again.get(leaf.field_id, NOTHING)]), NOTHING
        both = replace(base, distinct=base.distinct + new.distinct, values=base.values + new.values)
        if not plan.removed and base.values and _why_not_listed(policy, both):
            # Perhaps: both may have the same values.
            assert plan.base is not None
            base = with_sketch(store, plan.base, leaf.field_id, base)
        unlisted = _is_unlisted(policy, base, new, bool(plan.removed))
        resolved[leaf.field_id] = _otherwise(policy) if unlisted else "enumerated"
    if all(_is_decided(policy, resolved.get(leaf.field_id)) for leaf, policy in plan.spec.leaves):
        return plan
    spec = table_profile_spec(plan.snapshot.schema, table, resolved)
    return _under(plan, spec, fragments)


def record(store: ObjectStore, plan: Plan, files: ProfileFiles) -> dict[str, Decision]:
    """The decisions of the version that a settled plan leads to, from its table's statistics."""
    before = plan.base.decisions if plan.base else {}
    told: dict[str, CardinalityEstimate] | None = None
    decisions: dict[str, Decision] = {}
    for leaf, policy in plan.spec.leaves:
        old = before.get(leaf.field_id)
        if leaf.field_id not in plan.spec.open or (policy.is_enumerated and old is None):
            continue
        told = table_cardinality(store, files) if told is None else told
        own = told.get(leaf.field_id, NOTHING)
        numbers = f"about {own.distinct:,} distinct values among {own.values:,}"
        state: CardinalityMode
        if policy.is_enumerated:
            why_again = why_not_fingerprinted if policy.frequencies == "repeated" else why_listed
            state, reason = "enumerated", why_again(own.distinct, own.values) or numbers
        else:
            state = _otherwise(policy)
            reason = _why_not_listed(policy, own) or f"{numbers}, and those of a single file hardly repeat"
        if old is not None and old.frequencies == state:
            decisions[leaf.field_id] = replace(old, distinct=own.distinct, values=own.values)
        else:
            decisions[leaf.field_id] = Decision(state, reason, plan.number, own.distinct, own.values)
    return decisions


def _is_decided(policy: ResolvedPolicy, what: CardinalityMode | None) -> bool:
    """Whether a policy is as it was decided, or there is nothing to decide."""
    return what is None or (not policy.is_undecided and policy.is_enumerated == (what == "enumerated"))


def _under(plan: Plan, spec: ProfileSpec, fragments: Mapping[str, FragmentEntry]) -> Plan:
    """The plan with another profile spec: partitions stay only where they are what that one wants."""
    if spec.id == plan.spec.id:
        return plan
    specs = {**plan.specs, spec.id: spec.column_specs}
    known = SpecCompatibility(specs, spec)
    partitions = tuple(
        part
        if part.reused is None or holds(known, part.reused, [fragments[own] for own in part.fragments])
        else replace(part, reused=None)
        for part in plan.partitions
    )
    return replace(plan, spec=spec, specs=specs, partitions=partitions)


def _doubtful(
    store: ObjectStore,
    spec: ProfileSpec,
    open_: Set[str],
    before: Mapping[str, CardinalityEstimate],
    entries: Sequence[FragmentEntry],
) -> set[str]:
    """Those of the open columns for which it takes sketches to tell whether they stay listed.

    For the others it does not: they are listed even if no value of any fragment that came is one of another or was
    there before, and though sketches overestimate.
    """
    most: Counter[str] = Counter()
    values: Counter[str] = Counter()
    doubtful = {field_id for entry in entries for field_id in entry.unlisted if field_id in open_}
    with StatesReader(store) as opened:
        for entry in entries:
            for field_id, (_, count, distinct) in read_counts(opened, entry.files).items():
                values[field_id] += count
                most[field_id] += 0 if distinct is None else math.ceil(_OVERESTIMATE * distinct)
                if count and distinct is None and field_id in open_:
                    doubtful.add(field_id)
    for leaf, policy in spec.leaves:
        if leaf.field_id in open_:
            base = before.get(leaf.field_id, NOTHING)
            both = replace(
                base, distinct=base.distinct + most[leaf.field_id], values=base.values + values[leaf.field_id]
            )
            is_other = base.type_class is None or base.type_class != type_class(leaf.type).name
            if is_other or not base.values or _why_not_listed(policy, base) or _why_not_listed(policy, both):
                doubtful.add(leaf.field_id)
    return doubtful


def _is_unlisted(policy: ResolvedPolicy, base: CardinalityEstimate, came: CardinalityEstimate, some_went: bool) -> bool:
    if came.unlisted:
        return True
    if not some_went:
        both = together([base, came]) if base.values else came
        return _why_not_listed(policy, both) is not None
    # What went cannot be taken out of a sketch. Sure is what came, and what the published version held; what both
    # amount to now, the next commit will know.
    too_many = policy.frequencies != "repeated" and came.distinct > FREQUENCY_LIMIT
    return too_many or _why_not_listed(policy, base) is not None
