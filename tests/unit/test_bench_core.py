"""The load generator's core, against a server that is a few lines of test, on a clock that the test moves."""

import re

import pytest

from beanfield.bench.core import NO_LIMIT, BenchCore
from beanfield.bench.plan import SHAPES
from beanfield.bench.workload import (
    STEP_DELETE,
    STEP_NAMES,
    STEP_PUT,
    STEP_RESERVE,
    WATCH_ALL,
    WATCH_OWN,
    WATCH_PAIR,
    Workload,
    setup_commands,
)
from beanfield.constants import NEVER_NS, NS_PER_MS, NS_PER_S
from beanfield.ipc.actions import ACT_CLOSE

CYCLE = [STEP_PUT, STEP_RESERVE, STEP_DELETE]


def workload(steps=CYCLE, depth=1, sizes=(3,), delayed_every=0):
    return Workload(list(steps), depth, list(sizes), delayed_every, 10)


class Peer:
    """Answers what the core sends, when told to, as beanstalkd would. One tube for all."""

    def __init__(self, core, connections=1):
        self.core = core
        self.said = []  # every command line, in order
        self.jobs = []
        self.next_id = 1
        self.waiting = []  # handle, reply: what was asked and is not answered yet
        for handle in range(connections):
            core.connection_opened(handle, [b"use t\r\n", b"watch t\r\n", b"ignore default\r\n"])
        self.answer(0)

    def take(self):
        """Read what the core has sent."""
        outbox = self.core.take_outbox()
        for handle, data in zip(outbox[::2], outbox[1::2], strict=True):
            while data:
                line, _, data = data.partition(b"\r\n")
                self.said.append(line)
                word, *rest = line.split()
                if word == b"put":
                    body, data = data[: int(rest[3])], data[int(rest[3]) + 2 :]
                    reply = b"INSERTED %d\r\n" % self.next_id
                    self.jobs.append((self.next_id, body))
                    self.next_id += 1
                elif word == b"reserve-with-timeout":
                    reply = b"TIMED_OUT\r\n"
                    if self.jobs:
                        number, body = self.jobs.pop(0)
                        reply = b"RESERVED %d %d\r\n%s\r\n" % (number, len(body), body)
                else:
                    if word == b"release":
                        self.jobs.append((int(rest[0]), b""))
                    reply = {
                        b"use": b"USING t\r\n",
                        b"watch": b"WATCHING 2\r\n",
                        b"ignore": b"WATCHING 1\r\n",
                        b"delete": b"DELETED\r\n",
                        b"touch": b"TOUCHED\r\n",
                        b"release": b"RELEASED\r\n",
                    }[word]
                self.waiting.append((handle, reply))

    def answer(self, now_ns, count=None):
        """Answer so many of the commands sent, or all. How many there were."""
        self.take()
        answered, self.waiting = self.waiting[:count], self.waiting[len(self.waiting) if count is None else count :]
        for handle, reply in answered:
            self.core.client_received(handle, reply, now_ns)
        return len(answered)


def started(depth=1, connections=1, rate=0, jobs=NO_LIMIT, **more):
    core = BenchCore(workload(depth=depth, **more), rate)
    peer = Peer(core, connections)
    assert core.opening == 0
    core.measure(jobs)
    core.start(0)
    return core, peer


def counts(core):
    return {name: h.count for name, h in zip(STEP_NAMES, core.histograms, strict=True) if h.count}


def test_a_round_puts_reserves_and_deletes_the_same_job():
    core, peer = started()
    for turn in range(1, 7):
        assert peer.answer(turn * NS_PER_MS) == 1
        core.turn(turn * NS_PER_MS)
    words = [re.sub(rb" .*", b"", line) for line in peer.said]
    assert words[3:] == [b"put", b"reserve-with-timeout", b"delete"] * 2
    assert b"delete 1" in peer.said and b"delete 2" in peer.said
    assert counts(core) == {"put": 2, "reserve": 2, "delete": 2}
    assert core.everything().largest == NS_PER_MS


def test_depth_commands_go_out_at_once_and_the_next_wait_for_all_replies():
    core, peer = started(depth=3)
    peer.take()
    assert len(peer.waiting) == 3
    peer.answer(5, count=2)
    peer.take()
    assert len(peer.waiting) == 1
    peer.answer(9, count=1)
    core.turn(9)
    peer.take()
    assert [line for line in peer.said[-3:]] == [b"reserve-with-timeout 10"] * 3
    assert core.histograms[STEP_PUT].total == 5 + 5 + 9


def test_time_runs_from_the_turn_that_sends_not_from_the_reply_that_allowed_it():
    core, peer = started()
    peer.answer(1_000)
    core.turn(4_000)  # other connections were served meanwhile
    peer.answer(5_000)
    assert core.histograms[STEP_RESERVE].total == 1_000


def test_a_number_of_jobs_ends_the_load():
    core, peer = started(depth=4, connections=3, jobs=50)
    turn = 1
    while core.active:
        peer.answer(turn)
        core.turn(turn)
        turn += 1
    assert counts(core) == {"put": 50, "reserve": 50, "delete": 50}
    assert not peer.jobs and not peer.waiting


def test_no_more_is_reserved_than_was_put():
    core, peer = started(depth=2)
    peer.take()
    handle = peer.waiting[0][0]
    core.client_received(handle, b"INSERTED 1\r\nJOB_TOO_BIG\r\n", 1)
    peer.waiting.clear()
    peer.take()
    assert len(peer.waiting) == 1
    assert core.unexpected == {b"put: JOB_TOO_BIG": 1}


def test_unexpected_replies_are_told_apart_up_to_a_number():
    core, peer = started(depth=1_000, steps=[STEP_PUT])
    peer.take()
    for number in range(100):
        core.client_received(0, b"WHAT %d\r\n" % number, 1)
    assert sum(core.unexpected.values()) == 100
    assert core.unexpected[b"put: (others)"] == 80


def test_a_reserve_that_finds_nothing_is_counted_and_the_round_goes_on():
    core, peer = started(depth=2)
    peer.answer(1)
    peer.jobs.clear()
    peer.answer(2)
    assert core.timed_out == 2
    peer.take()
    assert peer.said[-1].startswith(b"put")
    assert not core.unexpected


def test_a_server_that_speaks_something_else_is_a_failure():
    core = BenchCore(workload(), 0)
    core.connection_opened(0, [b"use t\r\n"])
    core.client_received(0, b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n", 1)
    assert core.failure == b"HTTP/1.1 400 Bad Request"
    assert core.take_actions() == [ACT_CLOSE, 0]
    assert core.opening == 0


def test_a_lost_connection_is_counted_once_and_the_others_go_on():
    core, peer = started(connections=2)
    core.client_ended(1, 5)
    core.client_failed(1, 5)
    assert (core.lost, core.active) == (1, 1)
    assert core.take_actions() == [ACT_CLOSE, 1]
    core.client_received(1, b"INSERTED 1\r\n", 6)
    assert core.commands == 0
    peer.answer(7, count=1)
    assert core.commands == 1


def test_a_broken_stream_ends_its_connection():
    core, peer = started()
    peer.answer(1)
    core.client_received(0, b"RESERVED 1 1\r\nxxx\r\n", 2)
    assert (core.lost, core.active) == (1, 0)
    assert list(core.unexpected.values()) == [1]


def test_unanswered_commands_of_a_load_without_a_rate_are_told_with_the_longest_wait():
    core, peer = started(depth=2, connections=2)
    core.stop(7 * NS_PER_MS)
    assert (core.unanswered, core.oldest_ns, core.late.count) == (4, 7 * NS_PER_MS, 0)


# ---------------------------------------------------------------- with a rate


def test_a_rate_sends_at_even_intervals_each_connection_in_turn():
    core, peer = started(connections=2, rate=1_000)
    assert core.next_deadline_ns() == NS_PER_MS
    sent = []
    for now in range(0, 4 * NS_PER_MS, NS_PER_MS // 4):
        core.turn(now)
        peer.take()
        sent += [(now // (NS_PER_MS // 4), handle) for handle, _ in peer.waiting]
        peer.answer(now + 1_000)
    assert sent == [(0, 0), (4, 1), (8, 0), (12, 1)]
    assert core.everything().largest == 1_000


def test_with_a_rate_time_runs_from_when_a_command_was_due():
    core, peer = started(rate=1_000, steps=[STEP_PUT])
    # The server stalls for 10 ms: ten more commands fall due meanwhile, and none of them is forgotten.
    for now in range(0, 11):
        core.turn(now * NS_PER_MS)
        peer.take()
        assert len(peer.waiting) == 1
    now = 10 * NS_PER_MS
    while peer.answer(now):
        core.turn(now)
    times = core.histograms[STEP_PUT]
    assert times.count == 11
    assert times.total == sum(range(11)) * NS_PER_MS
    assert core.next_deadline_ns() == 11 * NS_PER_MS


@pytest.mark.parametrize("connections", [1, 3])
def test_with_a_rate_what_was_due_and_unanswered_counts_with_its_time_so_far(connections):
    core, peer = started(rate=1_000, connections=connections, steps=[STEP_PUT])
    for now in range(0, 30):
        core.turn(now * NS_PER_MS)
    core.stop(30 * NS_PER_MS - 1)
    assert core.unanswered == core.late.count == 30
    assert core.late.largest == 30 * NS_PER_MS - 1
    assert core.late.total == sum(range(1, 31)) * NS_PER_MS - 30
    assert core.everything().count == 30


def test_a_long_stall_at_a_high_rate_is_counted_in_few_steps():
    core, peer = started(rate=10_000_000, steps=[STEP_PUT])
    core.turn(1)
    core.stop(100 * NS_PER_S)
    assert core.late.count == core.unanswered == 1_000_000_001
    assert 49 * NS_PER_S < core.late.mean() < 51 * NS_PER_S


def test_a_rate_is_kept_over_a_long_run():
    core, peer = started(rate=7, steps=[STEP_PUT])
    now, sent = 0, 0
    while (now := core.next_deadline_ns()) < 1_000 * NS_PER_S:
        core.turn(now)
        sent += peer.answer(now)
    assert sent in (6_999, 7_000)


def test_without_a_rate_nothing_is_due():
    core, _ = started()
    assert core.next_deadline_ns() == NEVER_NS


# ---------------------------------------------------------------- loads


def test_a_mixed_load_delays_every_fourth_put_and_release_and_keeps_its_jobs_few():
    shape = SHAPES["mixed"]
    core, peer = started(depth=4, steps=shape.steps, delayed_every=shape.delayed_every)
    for turn in range(1, 61):
        peer.answer(turn)
        core.turn(turn)
    puts = [line for line in peer.said if line.startswith(b"put")]
    releases = [line for line in peer.said if line.startswith(b"release")]
    assert len(puts) == len(releases) == 40
    assert sum(line.split()[2] == b"1" for line in puts) == 10
    assert sum(line.endswith(b" 100 1") for line in releases) == 10
    assert len(peer.jobs) <= 4


def test_a_load_without_puts_ends_where_nothing_is_left():
    core = BenchCore(workload([STEP_RESERVE, STEP_DELETE], depth=4), 0)
    peer = Peer(core)
    peer.jobs = [(number, b"") for number in range(1, 11)]
    core.start(0)
    for turn in range(1, 20):
        peer.answer(turn)
    assert core.active == 0
    assert counts(core)["delete"] == 10 and not peer.jobs


def test_body_sizes_are_used_in_turn():
    core, peer = started(depth=5, sizes=(1, 20, 300), steps=[STEP_PUT])
    peer.answer(1)
    peer.answer(2)
    assert [int(line.split()[4]) for line in peer.said[3:]] == [1, 20, 300, 1, 20, 300, 1, 20, 300, 1]
    assert core.sent_bytes == 4 * 1 + 3 * 20 + 3 * 300 + 20 + 300 + 1 + 20 + 300


def test_setup_commands_follow_what_is_watched():
    own = setup_commands(b"b-", 5, 3, WATCH_OWN)
    assert own == [b"use b-2\r\n", b"watch b-2\r\n", b"ignore default\r\n"]
    assert setup_commands(b"b-", 5, 3, WATCH_PAIR) == own[:2]
    every = [b"watch b-0\r\n", b"watch b-1\r\n", b"watch b-2\r\n"]
    assert setup_commands(b"b-", 5, 3, WATCH_ALL) == [own[0], *every, own[2]]
