"""From old jobs to new ones: ids, times, states, names; and written into slots, they are found as they should be."""

import random

from beanfield.engine.job import BURIED, DELAYED, READY, Job
from beanfield.offline.binlog import Binlog
from beanfield.offline.binlog_records import RESERVED
from beanfield.offline.importing import ImportPlan
from beanfield.offline.tube_names import printable, repaired_name, valid_name
from beanfield.proto.line import _valid_name
from beanfield.routing import Topology
from tests.unit.binlog_bytes import CREATED_NS, V5, V7, S, read

NOW_NS = CREATED_NS + 1_000 * S
ONE = Topology(1, 1)
MANY = Topology(16, 4)


def plan_of(binlog: Binlog, topology: Topology = ONE, repair_names: bool = False) -> ImportPlan:
    return ImportPlan(binlog, topology, NOW_NS, repair_names)


def jobs_of(plan: ImportPlan) -> dict[int, Job]:
    """By old id."""
    return {entry.old_id: plan.job(entry, b"") for entry in plan.entries}


# ---------------------------------------------------------------- ids
def test_with_one_partition_ids_are_kept_and_go_on_behind_the_largest_ever() -> None:
    plan = plan_of(read(V7.file(V7.put(3), V7.put(70), V7.put(900), V7.delete(900))))
    assert [(entry.old_id, entry.id) for entry in plan.entries] == [(3, 3), (70, 70)]
    assert plan.keeps_ids
    assert ONE.make_id(plan.next_sequence, 0) == 901


def test_with_many_partitions_ids_grow_with_the_old_ones_over_all_tubes() -> None:
    names = [b"default", b"a", b"emails", b"x" * 200]
    records = [V7.put(id, b"", names[id % 4]) for id in (40, 7, 12, 99, 1)]
    plan = plan_of(read(V7.file(*records)), MANY)
    assert [entry.old_id for entry in plan.entries] == [1, 7, 12, 40, 99]
    ids = [entry.id for entry in plan.entries]
    assert ids == sorted(set(ids))
    for entry in plan.entries:
        assert MANY.partition_of_id(entry.id) == MANY.partition_of(entry.tube)
        assert MANY.sequence_of_id(entry.id) < plan.next_sequence
    assert plan.mapping_line(plan.entries[0]) == b"1\t%d\t%s\n" % (ids[0], plan.entries[0].tube)


def test_an_id_that_is_too_large_to_go_on_from_is_left_out_only_where_ids_are_kept() -> None:
    binlog = read(V7.file(V7.put(1), V7.put((1 << 64) - 1)))
    plan = plan_of(binlog)
    assert [entry.id for entry in plan.entries] == [1]
    assert plan.faults[0].lost and "too large" in plan.faults[0].text
    assert [entry.old_id for entry in plan_of(binlog, MANY).entries] == [1, (1 << 64) - 1]


# ---------------------------------------------------------------- times
def test_creation_times_are_cut_to_now_and_never_run_back() -> None:
    times = {1: CREATED_NS, 2: CREATED_NS - 5 * S, 3: CREATED_NS + S, 4: NOW_NS + 99 * S, 5: CREATED_NS}
    records = [V7.record(id, READY, b"a", b"", created_ns=created) for id, created in times.items()]
    created = [entry.created_ns for entry in plan_of(read(V7.file(*records))).entries]
    assert created == [CREATED_NS, CREATED_NS, CREATED_NS + S, NOW_NS, NOW_NS]


def test_states_are_those_of_a_restart() -> None:
    def record(id: int, state: int, deadline_ns: int = 0) -> bytes:
        return V7.record(id, state, b"a", b"", delay_s=50, deadline_ns=deadline_ns)

    far = NOW_NS + (1 << 32) * S
    data = V7.file(
        record(1, READY), record(2, RESERVED), record(3, 4, NOW_NS + 9 * S), record(4, 4, NOW_NS), record(5, 4, far)
    )
    plan = plan_of(read(data))
    jobs = jobs_of(plan)
    assert [int(jobs[id].state) for id in range(1, 6)] == [READY, READY, DELAYED, READY, DELAYED]
    assert jobs[3].deadline_ns == NOW_NS + 9 * S
    assert jobs[4].deadline_ns == 0
    assert jobs[5].deadline_ns == NOW_NS + 4_294_967_295 * S
    assert {job.delay_s() for job in jobs.values()} == {50}
    assert plan.states() == {"ready": 3, "delayed": 2, "buried": 0}


def test_version_5_counts_in_microseconds() -> None:
    record = V5.record(1, 4, b"a", b"", delay_s=30, ttr_s=90, deadline_ns=NOW_NS + 7 * S)
    job = jobs_of(plan_of(read(V5.file(record))))[1]
    assert (job.delay_s(), job.ttr_s(), job.deadline_ns, job.created_ns) == (30, 90, NOW_NS + 7 * S, CREATED_NS)


def test_buried_jobs_carry_the_number_of_their_burial() -> None:
    plan = plan_of(read(V7.file(*[V7.put(id) for id in (1, 2, 3)], V7.bury(2), V7.bury(3), V7.bury(1))))
    jobs = jobs_of(plan)
    assert {int(job.state) for job in jobs.values()} == {BURIED}
    assert sorted(jobs, key=lambda id: jobs[id].deadline_ns) == [2, 3, 1]


def test_numbers_past_ours_are_cut() -> None:
    longest = 4_294_967_295
    record = V7.record(1, READY, b"a", b"", ttr_s=0, counts=(longest, 1, 2, 3, longest))
    job = jobs_of(plan_of(read(V7.file(record))))[1]
    assert (job.ttr_s(), job.reserves, job.kicks) == (1, 2_147_483_647, 2_147_483_647)
    plan = plan_of(read(V7.file(V7.record(1, READY, b"a", b"", delay_s=longest + 9, ttr_s=longest + 9))))
    assert (jobs_of(plan)[1].delay_s(), jobs_of(plan)[1].ttr_s()) == (longest, longest)
    assert [fault.lost for fault in plan.faults] == [False]


# ---------------------------------------------------------------- names
def test_a_name_that_is_not_allowed_is_reported_or_repaired() -> None:
    binlog = read(V7.file(V7.put(1, b"", b'a"b\n'), V7.put(2, b"", b"fine")))
    plan = plan_of(binlog)
    assert [entry.old_id for entry in plan.entries] == [2]
    assert plan.faults[0].lost and "--repair-names" in str(plan.faults[0])
    repaired = plan_of(binlog, repair_names=True)
    assert [entry.tube for entry in repaired.entries] == [b"a_b_", b"fine"]
    assert not repaired.faults[0].lost


def test_names_are_judged_like_those_of_client_lines() -> None:
    chance = random.Random(5)
    names = [bytes([first]) for first in range(256)] + [bytes([97, second]) for second in range(256)]
    names += [chance.randbytes(chance.randrange(1, 6)) for _ in range(500)] + [b"x" * 200, b"x" * 201, b"-a", b""]
    for name in names:
        assert valid_name(name) == _valid_name(name + b"\r\n", 0, len(name)), name
        assert valid_name(repaired_name(name))
    assert printable(b"a-b") == "a-b"
    assert printable(b"a\n") == "'a\\n'"
