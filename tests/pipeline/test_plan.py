"""Which fragments a plan reads and which partitions it merges.

A plan depends on the published version, the snapshot, the policies, the request, and profiles that earlier attempts
saved. Making a plan reads no stored file. A spec says which outputs (such as frequencies) a profile has of each column.
A fragment is a data file with its deletes, and its profile is its statistics.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from metastore_assets.config import TableConfig
from metastore_assets.errors import PartitionNotFoundError
from metastore_assets.formats.base import Fragment, Snapshot, TypeReason
from metastore_assets.formats.schema_casting import set_default
from metastore_assets.pipeline import column_spec as column_specs
from metastore_assets.pipeline.plan import (
    PartitionPlan,
    Plan,
    PlanInputs,
    RefreshRequest,
    make_plan,
    members_id,
    partition_content_id,
)
from metastore_assets.pipeline.profile_spec import ProfileSpec, table_profile_spec
from metastore_assets.pipeline.table_changes import compare_snapshot
from metastore_assets.store.version import FragmentEntry, PartitionEntry, ProfileFiles, RetiredFragment, Version
from metastore_assets.values.columns import FIELD_ID

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TABLE = TableConfig(name="t", uri="/lake/t")


def fragment(identity: str, key: str = "all") -> Fragment:
    return Fragment(identity, key, f"/lake/t/{identity}.parquet", 10, None, source=None)


def snapshot(*fragments: Fragment, schema: pa.Schema = SCHEMA, identity: str = "1") -> Snapshot:
    return Snapshot("delta", identity, None, schema, (), fragments=tuple(fragments))


def entry(of: Fragment, spec: ProfileSpec, unprofiled_columns: tuple[str, ...] = ()) -> FragmentEntry:
    files = ProfileFiles(f"fragments/{of.id}.s", f"fragments/{of.id}.h", (f"fragments/{of.id}.f",))
    return FragmentEntry(of.id, of.partition_key, of.path, 10, 5, spec.id, unprofiled_columns, files)


def _partition(plan: Plan, one: PartitionPlan) -> PartitionEntry:
    content, files = partition_content_id(plan.spec.id, one.fragments), ProfileFiles(f"{one.key}.s", "", ())
    return PartitionEntry(
        one.key, content, 5, 10, len(one.fragments), files, 1, plan.spec.id, members_id(one.fragments)
    )


def published(plan: Plan, *removed_entries: FragmentEntry, unprofiled_columns: tuple[str, ...] = ()) -> Version:
    """Return the version that executing the plan would publish.

    Args:
        plan: The plan.
        *removed_entries: Removed fragments whose profiles the version still lists, so that a restore can use them.
        unprofiled_columns: The columns that new profiles lack, because the files do not have them.
    """
    target = plan.target.with_all_partitions()
    profiles = {one.id: entry(one, plan.spec, unprofiled_columns=unprofiled_columns) for one in plan.to_profile}
    profiles |= {each.id: each for each in plan.reused_profiles.values()}
    before = {each.id: each for each in (plan.base.fragments if plan.base else ())}
    fragments = [profiles.get(id_) or before[id_] for partition in target.partitions for id_ in partition.fragments]
    partitions = [partition.reused_entry or _partition(plan, partition) for partition in target.partitions]
    return Version(
        number=plan.number,
        table="t",
        format="delta",
        snapshot=plan.snapshot.id,
        committed_at=None,
        published_at=datetime(2026, 1, 1, tzinfo=UTC),
        schema=plan.snapshot.schema,
        partition_columns=(),
        row_count=0,
        bytes=0,
        content_id="",
        files=ProfileFiles("s", "h", ()),
        code_version="0",
        spec_id=plan.spec.id,
        specs=plan.target.specs,
        fragments=fragments,
        retired=[RetiredFragment(plan.number, each) for each in removed_entries],
        partitions=partitions,
    )


def plan(base: Version | None, now: Snapshot, table: TableConfig = TABLE, **how: Any) -> Plan:
    resolved_policies = how.pop("decided", {})
    spec = table_profile_spec(now.schema, table, resolved_policies)
    specs = {**(base.specs if base else {}), spec.id: spec.column_specs}
    request = RefreshRequest(how.pop("full", False), tuple(how.pop("partitions", ())))
    stored_entries = [each.fragment for each in base.retired] if base else []
    changes = compare_snapshot(now, base, "a test")
    return make_plan(PlanInputs("t", base, changes, spec, stored_entries, specs=specs, **how), request)


def ids(plan: Plan) -> list[str]:
    return [one.id for one in plan.to_profile]


def test_first_plan_reads_everything() -> None:
    first = plan(None, snapshot(fragment("a", "k=1"), fragment("b", "k=2")))
    assert (first.number, ids(first), first.changed_partitions) == (1, ["a", "b"], ("k=1", "k=2"))
    assert (len(first.added_ids), len(first.removed_fragments), first.unchanged_count) == (2, 0, 0)


def test_unchanged_fragments_are_not_read_and_their_partitions_stay() -> None:
    base = published(plan(None, snapshot(fragment("a", "k=1"), fragment("b", "k=2"))))
    second = plan(base, snapshot(fragment("a", "k=1"), fragment("b", "k=2"), fragment("c", "k=2"), identity="2"))
    assert (second.number, ids(second), second.changed_partitions) == (2, ["c"], ("k=2",))
    assert (second.added_ids, second.removed_fragments, second.unchanged_count) == (("c",), (), 2)
    assert [partition.key for partition in second.partitions] == ["k=2"]
    assert second.target.with_all_partitions().partitions[0].reused_entry == base.partitions[0]


def test_a_removed_fragment_changes_its_partition_without_reading() -> None:
    base = published(plan(None, snapshot(fragment("a"), fragment("b"))))
    second = plan(base, snapshot(fragment("a"), identity="2"))
    assert (ids(second), second.changed_partitions, [one.id for one in second.removed_fragments]) == (
        [],
        ("all",),
        ["b"],
    )


def test_a_partition_without_fragments_is_removed() -> None:
    base = published(plan(None, snapshot(fragment("a", "k=1"), fragment("b", "k=2"))))
    second = plan(base, snapshot(fragment("a", "k=1"), identity="2"))
    assert (second.changed_partitions, second.removed_partitions) == ((), ("k=2",))


def test_a_restored_fragment_is_not_read_again() -> None:
    first = snapshot(fragment("a"), fragment("b"))
    base = published(plan(None, first))
    without = plan(base, snapshot(fragment("a"), identity="2"))
    later = published(without, entry(fragment("b"), without.spec))
    restoring_plan = plan(later, snapshot(fragment("a"), fragment("b"), identity="3"))
    assert (ids(restoring_plan), restoring_plan.added_ids, restoring_plan.changed_partitions) == ([], ("b",), ("all",))


def test_profiles_of_an_attempt_that_did_not_publish_are_used() -> None:
    now = snapshot(fragment("a"), fragment("b"))
    spec = table_profile_spec(SCHEMA, TABLE)
    stored_entries = [entry(fragment("a"), spec)]
    assert ids(
        make_plan(
            PlanInputs(
                "t", None, compare_snapshot(now, None, ""), spec, stored_entries, specs={spec.id: spec.column_specs}
            )
        )
    ) == ["b"]


def test_a_profile_of_an_unknown_profile_spec_is_not_used() -> None:
    spec = table_profile_spec(SCHEMA, TABLE)
    stored_entries = [entry(fragment("a"), spec)]
    assert ids(
        make_plan(PlanInputs("t", None, compare_snapshot(snapshot(fragment("a")), None, ""), spec, stored_entries))
    ) == ["a"]


def with_id(name: str, identity: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: identity.encode()})


def test_a_rename_reads_nothing_and_recomputes_no_partition() -> None:
    before = pa.schema([with_id("name", "7", pa.string())])
    after = pa.schema([with_id("label", "7", pa.string())])
    base = published(plan(None, snapshot(fragment("a"), schema=before)))
    renaming_plan = plan(base, snapshot(fragment("a"), schema=after, identity="2"))
    assert (ids(renaming_plan), renaming_plan.changed_partitions) == ([], ())
    assert renaming_plan.spec.id != base.spec_id


def test_added_dropped_and_reordered_columns_recompute_no_partition() -> None:
    base = published(plan(None, snapshot(fragment("a", "k=1"), fragment("b", "k=2"))))
    more = pa.schema([pa.field("new", pa.int64()), SCHEMA.field("name"), SCHEMA.field("id")])
    second = plan(base, snapshot(fragment("a", "k=1"), fragment("b", "k=2"), schema=more, identity="2"))
    assert (ids(second), second.changed_partitions) == ([], ())
    third = plan(published(second), snapshot(fragment("a", "k=1"), schema=SCHEMA.remove(0), identity="3"))
    assert (ids(third), third.changed_partitions, third.removed_partitions) == ([], (), ("k=2",))


def test_a_partition_that_was_reduced_without_a_column_its_fragments_have_is_recomputed() -> None:
    """A partition that was merged while a column was dropped is merged again when the column returns.

    No file is read.
    """
    first = published(plan(None, snapshot(fragment("a"))))
    without = plan(first, snapshot(fragment("a"), fragment("b"), schema=SCHEMA.remove(1), identity="2"))
    assert without.changed_partitions == ("all",)
    back = plan(published(without), snapshot(fragment("a"), fragment("b"), identity="3"))
    assert (ids(back), back.changed_partitions) == ([], ("all",))


def test_a_widened_integer_reads_nothing() -> None:
    base = published(plan(None, snapshot(fragment("a"), schema=pa.schema([("id", pa.int32())]))))
    assert ids(plan(base, snapshot(fragment("a"), schema=pa.schema([("id", pa.int64())]), identity="2"))) == []


def test_a_type_of_another_class_reads_again() -> None:
    base = published(plan(None, snapshot(fragment("a"), schema=pa.schema([("id", pa.int64())]))))
    assert ids(plan(base, snapshot(fragment("a"), schema=pa.schema([("id", pa.float64())]), identity="2"))) == ["a"]


def test_a_dropped_column_reads_nothing() -> None:
    base = published(plan(None, snapshot(fragment("a"))))
    assert ids(plan(base, snapshot(fragment("a"), schema=SCHEMA.remove(1), identity="2"))) == []


def test_an_added_column_reads_no_fragment_written_before_it() -> None:
    base = published(plan(None, snapshot(fragment("a"), schema=SCHEMA.remove(1))))
    assert ids(plan(base, snapshot(fragment("a"), fragment("b"), identity="2"))) == ["b"]


def test_a_column_added_again_is_read_from_files_that_have_it() -> None:
    base = published(plan(None, snapshot(fragment("a"), schema=SCHEMA.remove(1))), unprofiled_columns=("name",))
    assert ids(plan(base, snapshot(fragment("a"), identity="2"))) == ["a"]


def policy(**column_policy: object) -> TableConfig:
    return TableConfig.model_validate({"name": "t", "uri": "/lake/t", "columns": {"id": column_policy}})


@pytest.mark.parametrize(
    ("before", "after", "output"),
    [
        ({}, {"frequencies": "off"}, None),
        ({}, {"histogram": "off"}, None),
        ({}, {"quantiles": "off"}, None),
        ({}, {"frequencies": "all"}, None),
        ({"histogram": 5000}, {"histogram": 1000}, None),
        ({"histogram": 1000}, {"histogram": 5000}, "histogram"),
        ({"histogram": "off"}, {}, "histogram"),
        ({"quantiles": "off"}, {}, "quantiles"),
        ({"frequencies": "off"}, {"frequencies": "all"}, "frequencies"),
    ],
)
def test_a_changed_policy_reads_only_missing_outputs(
    before: dict[str, object], after: dict[str, object], output: str | None
) -> None:
    """A policy that needs no more than what is stored reads nothing.

    Otherwise, the plan names the column and the missing output.
    """
    resolved_policies = {"id": "enumerated", "name": "enumerated"}
    base = published(plan(None, snapshot(fragment("a")), policy(**before), decided=resolved_policies))
    again = plan(base, snapshot(fragment("a")), policy(**after), decided=resolved_policies)
    assert ids(again) == ([] if output is None else ["a"])
    assert again.read_again == ({} if output is None else {"id": {output: 1}})
    assert again.to_json()["read_again"] == again.read_again
    stays = (before, after) == ({}, {"frequencies": "all"})
    assert again.changed_partitions == (() if stays else ("all",))


def test_a_new_option_with_a_default_changes_no_stored_spec() -> None:
    """A profile spec is the same whether the configuration has the default options or omits them."""
    policy_with_defaults = policy(frequencies="auto", histogram=1024, quantiles="sketch", ranks="off")
    assert table_profile_spec(SCHEMA, policy_with_defaults) == table_profile_spec(SCHEMA, TABLE)


@pytest.mark.parametrize("output", ["STATISTICS_VERSION", "FREQUENCIES_VERSION", "HISTOGRAMS_VERSION"])
def test_outputs_have_separate_versions(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """A release changes how statistics, frequencies or histograms are computed.

    Only columns whose profiles have this output are read again.
    """
    nothing = {"frequencies": "off", "histogram": "off"}
    only = {"STATISTICS_VERSION": {}, "FREQUENCIES_VERSION": {"frequencies": "all"}, "HISTOGRAMS_VERSION": {}}[output]
    without = TableConfig.model_validate({"name": "t", "uri": "/lake/t", "columns": {"default": nothing}})
    having = TableConfig.model_validate({"name": "t", "uri": "/lake/t", "columns": {"default": nothing | only}})
    if output == "HISTOGRAMS_VERSION":
        having = TableConfig.model_validate(
            {"name": "t", "uri": "/lake/t", "columns": {"default": {"frequencies": "off"}}}
        )
    bases = [published(plan(None, snapshot(fragment("a")), table)) for table in (without, having)]
    monkeypatch.setattr(column_specs, output, "99")
    ids_to_read = [
        ids(plan(base, snapshot(fragment("a")), table)) for base, table in zip(bases, (without, having), strict=True)
    ]
    assert ids_to_read == ([["a"], ["a"]] if output == "STATISTICS_VERSION" else [[], ["a"]])


def test_a_column_to_enumerate_is_read_in_fragments_without_value_counts() -> None:
    """One of two fragments has no value counts of a column that is to be enumerated.

    Only this fragment is read.

    The plan has the number of such fragments by column.
    """
    first = plan(None, snapshot(fragment("a"), fragment("b")))
    base = published(first)
    entries = [replace(entry, not_enumerated=("id",)) if entry.id == "a" else entry for entry in base.fragments]
    base = replace(base, fragments=entries)
    again = plan(base, snapshot(fragment("a"), fragment("b")), decided={"id": "enumerated", "name": "enumerated"})
    assert (ids(again), again.read_again) == (["a"], {"id": {"frequencies": 1}})
    estimating_plan = plan(
        base, snapshot(fragment("a"), fragment("b")), decided={"id": "estimated", "name": "enumerated"}
    )
    assert (ids(estimating_plan), estimating_plan.changed_partitions) == ([], ("all",))


def test_full_and_named_partitions_are_read_again() -> None:
    now = snapshot(fragment("a", "k=1"), fragment("b", "k=2"))
    base = published(plan(None, now))
    assert ids(plan(base, now, full=True)) == ["a", "b"]
    again = plan(base, now, partitions=["k=2"])
    assert (ids(again), again.changed_partitions) == (["b"], ("k=2",))


def test_patterns_name_partitions() -> None:
    now = snapshot(fragment("a", "k=1"), fragment("b", "k=2"), fragment("c", "k=a b%2Fc"))
    base = published(plan(None, now))
    assert plan(base, now, partitions=["k=[12]"]).changed_partitions == ("k=1", "k=2")
    assert plan(base, now, partitions=["k=1", "k=a b/*"]).changed_partitions == ("k=1", "k=a b%2Fc")


def test_an_unknown_partition_is_refused_by_name() -> None:
    with pytest.raises(PartitionNotFoundError, match=r"'k=9'.*'k=1'"):
        plan(None, snapshot(fragment("a", "k=1")), partitions=["k=9"])


def test_another_full_plan_uses_profiles_of_the_last_attempt() -> None:
    """A full refresh that is planned again uses the profile that its first attempt saved.

    It uses no published profiles.
    """
    now = snapshot(fragment("a", "k=1"), fragment("b", "k=2"))
    base = published(plan(None, now))
    fresh = entry(fragment("a", "k=1"), table_profile_spec(SCHEMA, TABLE))
    again = plan(base, now, full=True, attempt_profiles=[fresh])
    assert (ids(again), again.changed_partitions) == (["b"], ("k=1", "k=2"))
    assert again.reused_profiles["a"] == fresh


def test_an_added_column_with_a_default_is_read_from_all() -> None:
    """If an added column has no default, older rows have null in it, and nothing is read.

    If it has a default, all fragments are read once.
    """
    first = published(plan(None, snapshot(fragment("a"))))
    added_field = pa.field("new", pa.int64())
    assert ids(plan(first, snapshot(fragment("a"), schema=SCHEMA.append(added_field)))) == []
    default = set_default(added_field, pa.scalar(7, pa.int64()))
    second = plan(first, snapshot(fragment("a"), schema=SCHEMA.append(default)))
    assert ids(second) == ["a"]
    assert ids(plan(published(second), snapshot(fragment("a"), schema=SCHEMA.append(default)))) == []


def test_a_plan_reports_changed_types_and_reasons() -> None:
    """The plan lists the columns whose type changed.

    It has the reason if values in a file caused the change.
    """
    base = published(plan(None, snapshot(fragment("a"))))
    wider = pa.schema([("id", pa.string()), ("name", pa.binary()), ("new", pa.int64())])
    reasons = (TypeReason("id", pa.float64(), "no"), TypeReason("id", pa.int64(), "'01' in b.csv, line 2"))
    now = replace(snapshot(fragment("a"), fragment("b"), schema=wider, identity="2"), type_reasons=reasons)
    second = plan(base, now)
    assert ids(second) == ["a", "b"]
    assert second.to_json()["type_changes"] == [
        {"column": "id", "before": "int64", "now": "string", "reason": "'01' in b.csv, line 2"},
        {"column": "name", "before": "string", "now": "binary", "reason": None},
    ]
    assert plan(None, now).type_changes == ()


def test_a_profile_of_an_unknown_spec_lacks_all_outputs() -> None:
    """A fragment is read again for all columns if the version lacks the spec of its profile.

    The spec says which statistics the profile has.
    """
    base = published(plan(None, snapshot(fragment("a"), fragment("b"))))
    entries = [replace(entry, spec_id="unknown") if entry.id == "a" else entry for entry in base.fragments]
    again = plan(replace(base, fragments=entries), snapshot(fragment("a"), fragment("b")))
    assert ids(again) == ["a"]
    assert again.read_again == {"id": {"statistics": 1}, "name": {"statistics": 1}}
    hiding_plan = plan(
        replace(base, fragments=entries), snapshot(fragment("a"), fragment("b")), policy(values="hidden")
    )
    assert hiding_plan.read_again == {"id": {"statistics": 2}, "name": {"statistics": 1}}


def test_partitions_are_counted_once() -> None:
    """A plan of many partitions takes linear time.

    The merge of each partition needs the number of partitions, which is counted only once.
    """

    class CountedPartitions(tuple[PartitionPlan, ...]):
        iterations = 0

        def __iter__(self) -> Iterator[PartitionPlan]:
            CountedPartitions.iterations += 1
            return super().__iter__()

    target = plan(None, snapshot(fragment("a", "p=1"), fragment("b", "p=2"))).target
    counted_target = replace(target, partitions=CountedPartitions(target.partitions))
    assert [counted_target.partition_count for _ in range(3)] == [2, 2, 2]
    assert CountedPartitions.iterations == 1
