"""Time, signals and exceptions around one poll, and which reactor a process takes."""

import os
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from beanfield.constants import NEVER_NS, NS_PER_MS
from tests.unit.reactor.bench import IMPLEMENTATIONS, PATIENCE_NS, Bench, RecordingCore, available, pattern

# ---------------------------------------------------------------- time


def test_a_poll_never_returns_before_its_time(bench: Bench) -> None:
    for timeout_ns in (1, 300_000, NS_PER_MS, 1_700_000, 7 * NS_PER_MS):
        for _ in range(5):
            before_ns = bench.reactor.now_ns()
            bench.poll(timeout_ns)
            assert bench.reactor.now_ns() - before_ns >= timeout_ns


def test_a_deadline_in_the_far_future_can_be_waited_for(bench: Bench) -> None:
    _, peer = bench.pair()
    for timeout_ns in (1 << 52, 1 << 61, NEVER_NS - 1, NEVER_NS):
        peer.sendall(b"x")
        bench.poll(timeout_ns)
    assert len(bench.core.calls) == 4


def test_a_signal_does_not_cut_a_wait_short(bench: Bench) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        before_ns = time.monotonic_ns()
        bench.poll(40 * NS_PER_MS)
        assert time.monotonic_ns() - before_ns >= 40 * NS_PER_MS
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen


def test_an_exception_of_a_signal_handler_ends_an_endless_wait(bench: Bench) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        with pytest.raises(KeyboardInterrupt):
            bench.poll(NEVER_NS)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    _, peer = bench.pair()
    peer.sendall(b"x")
    bench.poll(NEVER_NS)
    assert len(bench.core.calls) == 1


def test_the_clock_is_the_monotonic_one(bench: Bench) -> None:
    before_ns = time.monotonic_ns()
    assert before_ns <= bench.reactor.now_ns() <= time.monotonic_ns()


def test_the_gil_is_given_up_while_waiting(bench: Bench) -> None:
    """Another thread's byte ends a wait for ever."""
    _, peer = bench.pair()
    helper = threading.Thread(target=lambda: peer.sendall(b"x"))
    helper.start()
    bench.until(lambda: len(bench.core.calls) == 1)
    helper.join()
    timer = threading.Timer(0.01, lambda: peer.sendall(b"y"))
    timer.start()
    bench.poll(NEVER_NS)
    timer.join()
    bench.until(lambda: len(bench.core.calls) == 2)


# ---------------------------------------------------------------- exceptions


class PlannedError(Exception):
    pass


def test_an_exception_of_the_core_leaves_poll_and_loses_nothing_of_the_others(one_by_one: Bench) -> None:
    bench = one_by_one
    bench.reactor.shut_down()
    bench.reactor = bench.new_reactor(turn_receive_bytes_max=4)
    pairs = [bench.pair() for _ in range(9)]
    for number, (_, peer) in enumerate(pairs):
        peer.sendall(b"x%d" % number)
        if number % 3 == 0:
            peer.close()

    def fail(call: str, handle: int) -> None:
        raise PlannedError(call)

    bench.core.reaction = fail
    failures = 0
    give_up_ns = time.monotonic_ns() + PATIENCE_NS
    while sum(name == "ended" for name, *_ in bench.core.calls) < 3 or len(bench.core.bytes_of) < 9:
        assert time.monotonic_ns() < give_up_ns
        try:
            bench.poll(NS_PER_MS)
        except PlannedError:
            failures += 1
    assert failures == len(bench.core.calls)
    if bench.name != "selectors":
        while sum(name == "failed" for name, *_ in bench.core.calls) < 3:
            assert time.monotonic_ns() < give_up_ns
            with pytest.raises(PlannedError):
                while True:
                    bench.poll(NS_PER_MS)
    for number, (handle, _) in enumerate(pairs):
        assert bench.core.bytes_of[handle] == b"x%d" % number
        if number % 3 == 0 and bench.name != "selectors":
            assert bench.names(handle) == ["received", "ended", "failed"]
    bench.core.reaction = None
    bench.assert_quiet()


def test_an_exception_in_a_word_about_unsent_bytes_loses_no_bytes(bench: Bench) -> None:
    handle, peer = bench.pair(send_buffer=4_096)
    data = pattern(200_000)

    def fail(call: str, handle: int) -> None:
        raise PlannedError(call)

    bench.core.reaction = fail
    bench.reactor.flush([handle, data])
    received = bytearray()
    while len(received) < len(data):
        try:
            bench.poll(0)
        except PlannedError:
            pass
        readable, _, _ = select.select([peer], [], [], 0)
        if readable:
            received += peer.recv(1 << 20)
    assert received == data
    assert bench.reactor.unsent(handle) == 0


def test_poll_is_not_reentrant(bench: Bench) -> None:
    _, peer = bench.pair()
    peer.sendall(b"x")
    bench.core.reaction = lambda call, handle: bench.reactor.poll(bench.core, 0)
    with pytest.raises(RuntimeError, match="reentrant"):
        bench.poll(PATIENCE_NS)
    bench.core.reaction = None
    bench.assert_quiet()


def test_another_core_may_be_given_to_the_next_poll(bench: Bench) -> None:
    handle, peer = bench.pair()
    peer.sendall(b"x")
    bench.poll()
    first = bench.core
    bench.core = RecordingCore()
    peer.sendall(b"y")
    bench.poll()
    assert (len(first.calls), bench.core.calls) == (1, [("received", handle, b"y")])


# ---------------------------------------------------------------- which one


@pytest.mark.parametrize("name", available())
def test_the_environment_forces_a_reactor(name: str) -> None:
    code = "from beanfield.io import poller; print(poller.build_name(), poller.Reactor.__module__)"
    environment = {**os.environ, "BEANFIELD_REACTOR": name}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{name} {IMPLEMENTATIONS[name]}\n"


def test_by_default_the_best_reactor_is_taken_and_unknown_names_are_refused() -> None:
    code = "from beanfield.io import poller; print(poller.build_name())"
    environment = {**os.environ}
    environment.pop("BEANFIELD_REACTOR", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == available()[0] + "\n"
    environment["BEANFIELD_REACTOR"] = "fastest"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "fastest" in done.stderr
