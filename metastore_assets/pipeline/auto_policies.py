"""Decisions whether `auto` and `repeated` columns are enumerated, from their numbers of values.

An enumerated column is stored as value counts: its distinct values with their frequencies. Otherwise a column with the
policy `auto` is `estimated`: no frequencies are stored, and the number of distinct values is estimated. A column with
the policy `repeated` is `fingerprinted`: stored as short hashes of its values. A policy is resolved when it is decided
whether its column is enumerated. The rules use the numbers of distinct values and of all values:

- An `auto` column becomes estimated if it has more than FREQUENCY_LIMIT distinct values, or if it has more than
  NEAR_UNIQUE_ABOVE values and more than half of them are distinct.
- It also becomes estimated if an added fragment has no value counts of it, because its values hardly repeat there.
- It becomes enumerated again only at stricter limits, see `why_enumerated`. A column near a limit therefore does not
  change with each commit.
- A `repeated` column follows the same rules without FREQUENCY_LIMIT.

Distinct values are counted with sketches, which depend only on the sets of values. Two processes that publish the same
fragments after the same version therefore decide the same.

An enumerated column can become estimated or fingerprinted during the refresh that decides it, because sketches and
fingerprints are derived from value counts. An estimated or fingerprinted column becomes enumerated only with the next
commit, because its fragments must be read again.

A fragment is a data file with its deletes, and its profile is its statistics. A column spec says which statistics of a
column are wanted or stored, and a profile spec has the specs of all columns. A version is the published statistics of a
table at one snapshot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import pyarrow as pa

from metastore_assets.config import FREQUENCY_LIMIT, NEAR_UNIQUE_ABOVE, CardinalityMode, ResolvedPolicy, TableConfig
from metastore_assets.pipeline.cardinality import (
    PROFILES_PER_TASK,
    UNKNOWN,
    CardinalityEstimate,
    estimate_cardinality,
    merge_estimates,
    table_cardinality,
    with_sketch,
)
from metastore_assets.pipeline.column_spec import parse_column_spec
from metastore_assets.pipeline.context import RefreshContext
from metastore_assets.pipeline.plan import Plan, Target, undecided_columns
from metastore_assets.pipeline.profile_spec import ProfileSpec, table_profile_spec
from metastore_assets.pipeline.profiles.states_reader import StatesReader
from metastore_assets.pipeline.profiles.stored import read_counts
from metastore_assets.pipeline.version_policies import recorded_resolutions
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version import Decision, FragmentEntry, ProfileFiles, Version
from metastore_assets.values.types import type_class

_OVERESTIMATE = 1.1
"""Upper bound of the ratio of a sketch's estimate to the true number of distinct values, see `statistics.distinct`."""


def why_estimated(distinct: int, values: int) -> str | None:
    """Return why an enumerated `auto` column becomes estimated; None if it stays enumerated.

    Args:
        distinct: Approximate number of distinct values.
        values: Number of values.
    """
    if distinct > FREQUENCY_LIMIT:
        return f"about {distinct:,} distinct values, more than {FREQUENCY_LIMIT:,}"
    if values > NEAR_UNIQUE_ABOVE and 2 * distinct > values:
        return f"about {distinct:,} of {values:,} values are distinct: they hardly repeat"
    return None


def why_enumerated(distinct: int, values: int) -> str | None:
    """Return why an estimated `auto` column becomes enumerated; None if it stays estimated.

    Args:
        distinct: Approximate number of distinct values.
        values: Number of values.
    """
    if 2 * distinct <= FREQUENCY_LIMIT and (2 * values <= NEAR_UNIQUE_ABOVE or 4 * distinct <= values):
        return f"about {distinct:,} distinct values among {values:,}: few enough to be enumerated"
    return None


def why_fingerprinted(distinct: int, values: int) -> str | None:
    """Return why an enumerated `repeated` column becomes fingerprinted; None if it stays enumerated.

    Args:
        distinct: Approximate number of distinct values.
        values: Number of values.
    """
    if values > NEAR_UNIQUE_ABOVE and 2 * distinct > values:
        return f"about {distinct:,} of {values:,} values are distinct: few of them can occur twice"
    return None


def why_not_fingerprinted(distinct: int, values: int) -> str | None:
    """Return why a fingerprinted `repeated` column becomes enumerated; None if it stays fingerprinted.

    Args:
        distinct: Approximate number of distinct values.
        values: Number of values.
    """
    if 2 * values <= NEAR_UNIQUE_ABOVE or 4 * distinct <= values:
        return f"about {distinct:,} distinct values among {values:,}: they repeat, so that value counts are shorter"
    return None


def _why_not_enumerated(policy: ResolvedPolicy, estimate: CardinalityEstimate) -> str | None:
    why = why_fingerprinted if policy.frequencies == "repeated" else why_estimated
    return why(estimate.distinct, estimate.values)


def _alternative(policy: ResolvedPolicy) -> CardinalityMode:
    return "fingerprinted" if policy.frequencies == "repeated" else "estimated"


def planned_resolutions(
    base: Version, schema: pa.Schema, table: TableConfig, store: ObjectStore, *, has_new_snapshot: bool
) -> dict[str, CardinalityMode]:
    """Decide before profiling which `auto` and `repeated` columns are enumerated.

    Args:
        base: The published version.
        schema: The schema of the snapshot.
        table: The configured policies.
        store: The table's folder.
        has_new_snapshot: Whether the table has changed since `base`. If it has not, a column that was estimated or
            fingerprinted under the same policy in `base` remains so.

    Returns:
        {field id: mode} of the `auto` and `repeated` columns that `base` has. The mode of a column that is not
        enumerated is `estimated` for `auto`, and `fingerprinted` for `repeated`.
    """
    spec = table_profile_spec(schema, table)
    if not spec.unresolved_ids:
        return {}
    column_specs = map(parse_column_spec, _published_column_specs(base, table).values())
    states = {
        field_id: column.state(field_id) for column in column_specs if column is not None for field_id in column.values
    }
    resolutions: dict[str, CardinalityMode] = {}
    estimates: dict[str, CardinalityEstimate] | None = None
    policies = {column.field_id: policy for column, policy in spec.columns}
    for field_id in spec.unresolved_ids:
        policy, state, decision = policies[field_id], states.get(field_id), base.decisions.get(field_id)
        if state == "enumerated":
            resolutions[field_id] = "enumerated"
        elif state == _alternative(policy) and decision is not None:
            why = why_not_fingerprinted if policy.frequencies == "repeated" else why_enumerated
            is_known = decision.distinct > 0 or not decision.values
            enumerate_again = has_new_snapshot and is_known and why(decision.distinct, decision.values) is not None
            resolutions[field_id] = "enumerated" if enumerate_again else _alternative(policy)
        elif state is not None:
            # The base has the column under another policy. The table's statistics decide what has to be read.
            estimates = table_cardinality(store, base.files) if estimates is None else estimates
            is_enumerated = _why_not_enumerated(policy, estimates.get(field_id, UNKNOWN)) is None
            resolutions[field_id] = "enumerated" if is_enumerated else _alternative(policy)
    return resolutions


def _published_column_specs(base: Version, table: TableConfig) -> Mapping[str, str]:
    """Return the column specs of the published version, as texts by field id.

    The key of a top-level column without a field id is its name.

    A profile spec is first computed from the configured policies and the decisions that the version records. If it has
    the same id (a digest) as the profile spec of the version, the column specs in it are returned. Otherwise, for
    example after a change of the policies, the column specs are read from the store.
    """
    expected_spec = table_profile_spec(base.schema, table, recorded_resolutions(base, table))
    return expected_spec.column_specs if expected_spec.id == base.spec_id else base.specs[base.spec_id]


def resolve_auto_policies(context: RefreshContext, plan: Plan, fragments: Mapping[str, FragmentEntry]) -> ProfileSpec:
    """Decide after profiling which `auto` and `repeated` columns are enumerated.

    Return the resulting spec.

    Args:
        context: The table, its store and engine.
        plan: The plan.
        fragments: The entries of the fragments that the plan adds or reads, by fragment id.

    Raises:
        CorruptionError: A stored profile is damaged.
    """
    engine, store, spec = context.engine, context.objects, plan.spec
    undecided_ids = undecided_columns(spec)
    if not undecided_ids:
        return spec
    estimates_before = table_cardinality(store, plan.base.files) if plan.base is not None else {}
    added_ids = set(plan.added_ids)
    added_entries = [fragments[id_] for id_ in plan.added_ids]
    needing_sketches = (
        _columns_needing_sketches(store, spec, undecided_ids, estimates_before, added_entries)
        if len(added_entries) <= PROFILES_PER_TASK
        else undecided_ids
    )
    added_estimates = estimate_cardinality(engine, store, needing_sketches, added_entries) if needing_sketches else {}
    read_again = [fragments[fragment.id] for fragment in plan.to_profile if fragment.id not in added_ids]
    read_again_estimates: dict[str, CardinalityEstimate] | None = None
    resolutions: dict[str, CardinalityMode] = {}
    for column, policy in spec.columns:
        if column.field_id not in undecided_ids:
            if column.field_id in spec.auto_ids and not policy.is_enumerated:
                resolutions[column.field_id] = _alternative(policy)
            continue
        if column.field_id not in needing_sketches:
            resolutions[column.field_id] = "enumerated"
            continue
        before, new = estimates_before.get(column.field_id, UNKNOWN), added_estimates.get(column.field_id, UNKNOWN)
        if before.type_class != type_class(column.type).name:
            # The published version does not have the column, or has it with another type. Fragments that are read again
            # for it count as added.
            if read_again_estimates is None:
                read_again_estimates = estimate_cardinality(engine, store, undecided_ids, read_again)
            new, before = merge_estimates([new, read_again_estimates.get(column.field_id, UNKNOWN)]), UNKNOWN
        upper = replace(before, distinct=before.distinct + new.distinct, values=before.values + new.values)
        if not plan.removed_fragments and before.values and _why_not_enumerated(policy, upper):
            # The same values may be in both, which only a sketch of the published values shows.
            assert plan.base is not None
            before = with_sketch(store, plan.base, column.field_id, before)
        is_enumerated = _is_enumerated(policy, before, new, has_removed=bool(plan.removed_fragments))
        resolutions[column.field_id] = "enumerated" if is_enumerated else _alternative(policy)
    if all(_is_resolved_as(policy, resolutions.get(column.field_id)) for column, policy in spec.columns):
        return spec
    return table_profile_spec(plan.snapshot.schema, context.table, resolutions)


def record_decisions(store: ObjectStore, target: Target, files: ProfileFiles) -> dict[str, Decision]:
    """Return {field id: decision} that the next version records for its `auto` and `repeated` columns.

    A column that has always been enumerated has no record. A decision has 0 distinct values if their number is unknown.
    It is unknown if the values of a fragment could only be counted, for example texts that are not UTF-8.

    Args:
        store: The table's folder.
        target: The next version, with all policies resolved.
        files: The table's profile in the next version.
    """
    before = target.base.decisions if target.base else {}
    estimates: dict[str, CardinalityEstimate] | None = None
    decisions: dict[str, Decision] = {}
    for column, policy in target.spec.columns:
        previous = before.get(column.field_id)
        if column.field_id not in target.spec.auto_ids or (policy.is_enumerated and previous is None):
            continue
        estimates = table_cardinality(store, files) if estimates is None else estimates
        estimate = estimates.get(column.field_id, UNKNOWN)
        numbers = f"about {estimate.distinct:,} distinct values among {estimate.values:,}"
        mode: CardinalityMode = "enumerated" if policy.is_enumerated else _alternative(policy)
        if estimate.values and not estimate.distinct:
            reason = f"an unknown number of distinct values among {estimate.values:,}: some files have only counts"
        elif policy.is_enumerated:
            why_again = why_not_fingerprinted if policy.frequencies == "repeated" else why_enumerated
            reason = why_again(estimate.distinct, estimate.values) or numbers
        else:
            reason = (
                _why_not_enumerated(policy, estimate) or f"{numbers}, and the values of a single file hardly repeat"
            )
        if previous is not None and previous.frequencies == mode:
            decisions[column.field_id] = replace(previous, distinct=estimate.distinct, values=estimate.values)
        else:
            decisions[column.field_id] = Decision(mode, reason, target.number, estimate.distinct, estimate.values)
    return decisions


def _is_resolved_as(policy: ResolvedPolicy, mode: CardinalityMode | None) -> bool:
    """Return whether a policy is already resolved to the decided mode.

    True if nothing was decided (`mode` is None).
    """
    return mode is None or (not policy.is_undecided and policy.is_enumerated == (mode == "enumerated"))


def _columns_needing_sketches(
    store: ObjectStore,
    spec: ProfileSpec,
    undecided_ids: Set[str],
    estimates: Mapping[str, CardinalityEstimate],
    added_entries: Sequence[FragmentEntry],
) -> set[str]:
    """Return the field ids of the undecided columns that can be decided only with merged sketches.

    A column needs no sketches, and stays enumerated, if the sum of the stored distinct counts of the published version
    and of the added fragments is within the limits. Sketches are needed if the sum exceeds a limit, if a count is
    unknown, if an added fragment has no value counts of the column, or if the column has no published values of the
    same type.

    Args:
        store: The table's folder.
        spec: The planned profile spec.
        undecided_ids: Field ids of the `auto` and `repeated` columns that are enumerated until they are decided.
        estimates: Estimates of the published version, by field id.
        added_entries: The entries of the added fragments.
    """
    max_distinct: Counter[str] = Counter()
    values: Counter[str] = Counter()
    columns = {field_id for entry in added_entries for field_id in entry.not_enumerated if field_id in undecided_ids}
    with StatesReader(store) as reader:
        for entry in added_entries:
            for field_id, (_, count, distinct) in read_counts(reader, entry.files).items():
                values[field_id] += count
                max_distinct[field_id] += 0 if distinct is None else math.ceil(_OVERESTIMATE * distinct)
                if count and distinct is None and field_id in undecided_ids:
                    columns.add(field_id)
    for column, policy in spec.columns:
        if column.field_id in undecided_ids:
            before = estimates.get(column.field_id, UNKNOWN)
            upper = replace(
                before,
                distinct=before.distinct + max_distinct[column.field_id],
                values=before.values + values[column.field_id],
            )
            has_other_type = before.type_class != type_class(column.type).name
            if (
                has_other_type
                or not before.values
                or _why_not_enumerated(policy, before)
                or _why_not_enumerated(policy, upper)
            ):
                columns.add(column.field_id)
    return columns


def _is_enumerated(
    policy: ResolvedPolicy, before: CardinalityEstimate, added_estimate: CardinalityEstimate, *, has_removed: bool
) -> bool:
    """Return whether a column stays enumerated.

    False if an added fragment has no value counts of it.

    Args:
        policy: The column's policy.
        before: The estimate of the published version.
        added_estimate: The estimate of the added fragments.
        has_removed: Whether fragments were removed. `before` still includes their values.
    """
    if added_estimate.not_enumerated:
        return False
    if not has_removed:
        return (
            _why_not_enumerated(policy, merge_estimates([before, added_estimate]) if before.values else added_estimate)
            is None
        )
    # Removed values cannot be subtracted from a sketch, so the decision uses only the published version and the added
    # fragments. The next commit decides by the exact statistics of this version.
    has_too_many = policy.frequencies != "repeated" and added_estimate.distinct > FREQUENCY_LIMIT
    return not has_too_many and _why_not_enumerated(policy, before) is None
