"""One suite for every reactor: the native one, its pure twin, and the one on `selectors`.

A test that takes `bench` runs on all that this build has; one that takes `epoll_bench` only on those that notice the end
of a peer without reading, which `selectors` cannot.
"""

import errno
import importlib
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from beanfield.constants import CLIENT_RECEIVE_BYTES, LINK_RECEIVE_BYTES, NEVER_NS, NS_PER_MS, NS_PER_S
from beanfield.io.reactor import CLIENT, LINK, RAW

IMPLEMENTATIONS = {
    "native": "beanfield.io._reactor",
    "pure": "beanfield.io.reactor",
    "selectors": "beanfield.io.selectors_reactor",
}
PATIENCE_NS = 10 * NS_PER_S  # how long a loaded machine may take for what should come at once


def available() -> list[str]:
    found = []
    for name, module in IMPLEMENTATIONS.items():
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        found.append(name)
    return found


class RecordingCore:
    """Writes down every call; a test may hang a reaction on it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.bytes_of: dict[int, bytearray] = {}
        self.last_now_ns = 0
        self.reaction: Callable[[str, int], None] | None = None

    def _record(self, call: str, handle: int, now_ns: int, *extra: Any) -> None:
        assert type(handle) is int and type(now_ns) is int
        assert self.last_now_ns <= now_ns <= time.monotonic_ns()
        self.last_now_ns = now_ns
        self.calls.append((call, handle, *extra))
        if self.reaction is not None:
            self.reaction(call, handle)

    def client_received(self, handle: int, data: bytes, now_ns: int) -> None:
        assert type(data) is bytes and 0 < len(data) <= CLIENT_RECEIVE_BYTES
        self.bytes_of.setdefault(handle, bytearray()).extend(data)
        self._record("received", handle, now_ns, data)

    def client_ended(self, handle: int, now_ns: int) -> None:
        self._record("ended", handle, now_ns)

    def client_failed(self, handle: int, now_ns: int) -> None:
        self._record("failed", handle, now_ns)

    def client_unsent(self, handle: int, unsent_bytes: int, now_ns: int) -> None:
        assert unsent_bytes >= 0
        self._record("unsent", handle, now_ns, unsent_bytes)

    def link_received(self, handle: int, data: bytes, now_ns: int) -> None:
        assert type(data) is bytes and 0 < len(data) <= LINK_RECEIVE_BYTES
        self.bytes_of.setdefault(handle, bytearray()).extend(data)
        self._record("link_received", handle, now_ns, data)

    def link_ended(self, handle: int, now_ns: int) -> None:
        self._record("link_ended", handle, now_ns)

    def link_unsent(self, handle: int, unsent_bytes: int, now_ns: int) -> None:
        assert unsent_bytes >= 0
        self._record("link_unsent", handle, now_ns, unsent_bytes)


class Bench:
    """A reactor, a core that records, and the other ends of its sockets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.new_reactor = importlib.import_module(IMPLEMENTATIONS[name]).Reactor
        self.reactor = self.new_reactor()
        self.core = RecordingCore()
        self.peers: list[socket.socket] = []

    def pair(self, kind: int = CLIENT, family: str = "unix", send_buffer: int = 0) -> tuple[int, socket.socket]:
        if family == "unix":
            own, peer = socket.socketpair()
        else:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                peer = socket.create_connection(listener.getsockname())
                own, _ = listener.accept()
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        peer.settimeout(PATIENCE_NS / NS_PER_S)
        self.peers.append(peer)
        return self.reactor.add(own.detach(), kind), peer

    def poll(self, timeout_ns: int = 0) -> list[int]:
        ready = self.reactor.poll(self.core, timeout_ns)
        assert isinstance(ready, list)
        return ready

    def until(self, condition: Callable[[], bool]) -> None:
        give_up_ns = time.monotonic_ns() + PATIENCE_NS
        while not condition():
            assert time.monotonic_ns() < give_up_ns, self.core.calls[-20:]
            self.poll(5 * NS_PER_MS)

    def until_call(self, *call: Any) -> None:
        self.until(lambda: call in self.core.calls)

    def read_while_polling(self, peer: socket.socket, size: int) -> bytes:
        """What the peer gets, while the reactor goes on sending it."""
        received = bytearray()
        give_up_ns = time.monotonic_ns() + PATIENCE_NS
        while len(received) < size:
            assert time.monotonic_ns() < give_up_ns, f"{len(received)} of {size} bytes"
            readable, _, _ = select.select([peer], [], [], 0)
            if readable:
                piece = peer.recv(1 << 20)
                assert piece
                received += piece
            self.poll(0 if readable else NS_PER_MS)
        return bytes(received)

    def names(self, handle: int) -> list[str]:
        return [call[0] for call in self.core.calls if call[1] == handle]

    def ends(self, handle: int) -> list[str]:
        return [name for name in self.names(handle) if name in ("ended", "failed", "link_ended")]

    def assert_quiet(self) -> None:
        """Nothing makes poll() return before its time: there is no busy loop. Work left over comes first."""
        for _ in range(10):
            self.poll(0)
            if not self.reactor.full:
                break
        calls = list(self.core.calls)
        before_ns = time.monotonic_ns()
        assert self.poll(15 * NS_PER_MS) == []
        assert time.monotonic_ns() - before_ns >= 15 * NS_PER_MS
        assert self.core.calls == calls

    def close(self) -> None:
        self.reactor.shut_down()
        for peer in self.peers:
            peer.close()


def run_bench(name: str) -> Iterator[Bench]:
    before = len(os.listdir("/proc/self/fd"))
    made = Bench(name)
    yield made
    made.close()
    assert len(os.listdir("/proc/self/fd")) == before, "a descriptor leaked"


@pytest.fixture(params=available())
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from run_bench(request.param)


@pytest.fixture(params=[name for name in available() if name != "selectors"])
def epoll_bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from run_bench(request.param)


def reset(peer: socket.socket) -> None:
    """Close with RST."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def read_exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(min(size - len(data), 1 << 20))
        assert piece, f"the end after {len(data)} of {size} bytes"
        data += piece
    return bytes(data)


def pattern(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


# ---------------------------------------------------------------- receiving


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_what_a_client_and_a_link_send_arrives_by_its_own_call(bench: Bench, family: str) -> None:
    client, client_peer = bench.pair(CLIENT, family)
    link, link_peer = bench.pair(LINK, family)
    client_peer.sendall(b"stats\r\n")
    link_peer.sendall(b"frame")
    bench.until(lambda: len(bench.core.calls) == 2)
    assert sorted(bench.core.calls) == [("link_received", link, b"frame"), ("received", client, b"stats\r\n")]
    bench.assert_quiet()


def test_one_receive_per_turn_and_handle(bench: Bench) -> None:
    client, client_peer = bench.pair(CLIENT)
    link, link_peer = bench.pair(LINK)
    data = pattern(CLIENT_RECEIVE_BYTES + 1_000)
    client_peer.sendall(data)
    link_peer.sendall(data)
    bench.poll()
    assert sorted(len(call[2]) for call in bench.core.calls) == [CLIENT_RECEIVE_BYTES, len(data)]
    bench.poll()
    assert bench.core.bytes_of[client] == bench.core.bytes_of[link] == data
    assert len(bench.core.calls) == 3


def test_a_turn_receives_a_limited_amount_and_those_put_off_come_first_in_the_next(bench: Bench) -> None:
    bench.reactor.shut_down()
    bench.reactor = bench.new_reactor(turn_receive_bytes_max=3 * CLIENT_RECEIVE_BYTES)
    pairs = [bench.pair() for _ in range(7)]
    for _, peer in pairs:
        peer.sendall(b"x" * (2 * CLIENT_RECEIVE_BYTES))
    order: list[int] = []
    for _ in range(4):
        bench.core.calls.clear()
        bench.poll()
        assert bench.reactor.full
        assert len(bench.core.calls) == 3
        order += [call[1] for call in bench.core.calls]
    # Twelve receives over seven handles: nobody has had a second before everybody had a first.
    assert sorted(order[:7]) == sorted(handle for handle, _ in pairs)
    assert len(set(order[7:])) == 5
    while bench.reactor.full:
        bench.poll()
    for handle, _ in pairs:
        assert len(bench.core.bytes_of[handle]) == 2 * CLIENT_RECEIVE_BYTES
    bench.assert_quiet()


def test_a_handle_put_off_and_then_paused_or_closed_is_left_alone(bench: Bench) -> None:
    bench.reactor.shut_down()
    bench.reactor = bench.new_reactor(turn_receive_bytes_max=1)
    pairs = [bench.pair() for _ in range(3)]
    for _, peer in pairs:
        peer.sendall(b"x")
    bench.poll()
    first = bench.core.calls[0][1]
    others = [handle for handle, _ in pairs if handle != first]
    bench.reactor.pause(others[0])
    bench.reactor.close(others[1])
    bench.assert_quiet()
    assert len(bench.core.calls) == 1
    bench.reactor.resume(others[0])
    bench.until(lambda: len(bench.core.calls) == 2)
    assert bench.core.calls[1] == ("received", others[0], b"x")


def test_a_full_batch_says_that_there_may_be_more(epoll_bench: Bench) -> None:
    epoll_bench.reactor.shut_down()
    epoll_bench.reactor = epoll_bench.new_reactor(events_max=4)
    for _ in range(6):
        epoll_bench.pair()[1].sendall(b"x")
    epoll_bench.poll()
    assert epoll_bench.reactor.full
    assert len(epoll_bench.core.calls) == 4
    epoll_bench.poll()
    assert len(epoll_bench.core.calls) == 6
    assert not epoll_bench.reactor.full


def test_a_paused_handle_is_not_read_until_resumed(bench: Bench) -> None:
    handle, peer = bench.pair()
    bench.reactor.pause(handle)
    peer.sendall(b"later")
    bench.assert_quiet()
    bench.reactor.resume(handle)
    bench.until_call("received", handle, b"later")


def test_a_pause_inside_a_callback_holds_for_the_rest_of_the_batch(bench: Bench) -> None:
    pairs = [bench.pair() for _ in range(2)]
    for _, peer in pairs:
        peer.sendall(b"x")

    def pause_all(call: str, handle: int) -> None:
        for other, _ in pairs:
            bench.reactor.pause(other)

    bench.core.reaction = pause_all
    bench.poll()
    assert len(bench.core.calls) == 1


# ---------------------------------------------------------------- the end of a peer


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_a_half_closed_client_is_told_once_after_its_bytes_and_still_answered(bench: Bench, family: str) -> None:
    handle, peer = bench.pair(CLIENT, family)
    peer.sendall(b"reserve\r\n")
    peer.shutdown(socket.SHUT_WR)
    bench.until_call("ended", handle)
    assert bench.core.calls == [("received", handle, b"reserve\r\n"), ("ended", handle)]
    bench.assert_quiet()
    bench.reactor.flush([handle, b"TIMED_OUT\r\n"])
    assert read_exactly(peer, 11) == b"TIMED_OUT\r\n"
    bench.reactor.close(handle)
    assert peer.recv(1) == b""


def test_the_end_comes_after_all_that_was_sent_before_it(bench: Bench) -> None:
    handle, peer = bench.pair()
    data = pattern(2 * CLIENT_RECEIVE_BYTES + 500)
    peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
    bench.until_call("ended", handle)
    assert bench.core.bytes_of[handle] == data
    assert bench.names(handle) == ["received"] * 3 + ["ended"]


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_the_end_of_a_paused_client_is_told_at_once_and_its_bytes_when_resumed(
    epoll_bench: Bench, family: str
) -> None:
    handle, peer = epoll_bench.pair(CLIENT, family)
    epoll_bench.reactor.pause(handle)
    peer.sendall(b"put 0 0 1 1\r\nx\r\n")
    peer.shutdown(socket.SHUT_WR)
    epoll_bench.until_call("ended", handle)
    assert epoll_bench.core.calls == [("ended", handle)]
    epoll_bench.assert_quiet()
    epoll_bench.reactor.resume(handle)
    epoll_bench.until_call("received", handle, b"put 0 0 1 1\r\nx\r\n")
    epoll_bench.assert_quiet()
    assert epoll_bench.ends(handle) == ["ended"]
    epoll_bench.reactor.flush([handle, b"INSERTED 1\r\n"])
    assert peer.recv(100) == b"INSERTED 1\r\n"


def test_a_pause_before_the_end_was_read_brings_the_word_at_once(epoll_bench: Bench) -> None:
    handle, peer = epoll_bench.pair()
    peer.sendall(b"x" * (CLIENT_RECEIVE_BYTES + 1))
    peer.shutdown(socket.SHUT_WR)
    epoll_bench.poll()
    assert epoll_bench.names(handle) == ["received"]
    epoll_bench.reactor.pause(handle)
    epoll_bench.poll()
    assert epoll_bench.names(handle) == ["received", "ended"]
    epoll_bench.reactor.resume(handle)
    epoll_bench.poll()
    epoll_bench.assert_quiet()
    assert epoll_bench.names(handle) == ["received", "ended", "received"]


def test_a_client_that_closed_has_ended_and_failed_after_its_bytes(bench: Bench) -> None:
    handle, peer = bench.pair()
    peer.sendall(b"x" * (CLIENT_RECEIVE_BYTES + 1))
    peer.close()
    bench.until_call("ended", handle)
    if bench.name == "selectors":  # which sees that nobody is there when it sends
        bench.reactor.flush([handle, b"y"])
    bench.until_call("failed", handle)
    assert bench.names(handle) == ["received", "received", "ended", "failed"]
    bench.assert_quiet()


@pytest.mark.parametrize("paused", [False, True])
def test_a_reset_is_an_end_and_a_failure_each_told_once(epoll_bench: Bench, paused: bool) -> None:
    handle, peer = epoll_bench.pair(CLIENT, "tcp")
    peer.sendall(b"before")
    epoll_bench.until_call("received", handle, b"before")
    if paused:
        epoll_bench.reactor.pause(handle)
    reset(peer)
    epoll_bench.until_call("failed", handle)
    assert epoll_bench.names(handle) == ["received", "ended", "failed"]
    epoll_bench.assert_quiet()
    epoll_bench.reactor.resume(handle)
    epoll_bench.assert_quiet()
    epoll_bench.reactor.pause(handle)
    epoll_bench.assert_quiet()


def test_a_reset_is_seen_by_reading_where_nothing_else_tells(bench: Bench) -> None:
    handle, peer = bench.pair(CLIENT, "tcp")
    reset(peer)
    bench.until_call("failed", handle)
    assert bench.names(handle) == ["ended", "failed"]
    bench.assert_quiet()


def test_a_half_closed_client_that_then_resets_has_failed(epoll_bench: Bench) -> None:
    handle, peer = epoll_bench.pair(CLIENT, "tcp")
    peer.shutdown(socket.SHUT_WR)
    epoll_bench.until_call("ended", handle)
    reset(peer)
    epoll_bench.until_call("failed", handle)
    assert epoll_bench.names(handle) == ["ended", "failed"]
    epoll_bench.assert_quiet()


def test_a_paused_client_that_closed_leaves_its_bytes_for_later_without_a_spin(epoll_bench: Bench) -> None:
    handle, peer = epoll_bench.pair()
    epoll_bench.reactor.pause(handle)
    data = pattern(CLIENT_RECEIVE_BYTES + 7)
    peer.sendall(data)
    peer.close()
    epoll_bench.until_call("failed", handle)
    assert epoll_bench.core.calls == [("ended", handle), ("failed", handle)]
    epoll_bench.assert_quiet()
    epoll_bench.reactor.resume(handle)
    epoll_bench.until(lambda: len(epoll_bench.core.bytes_of.get(handle, b"")) == len(data))
    epoll_bench.assert_quiet()
    assert epoll_bench.core.bytes_of[handle] == data
    assert epoll_bench.ends(handle) == ["ended", "failed"]


@pytest.mark.parametrize("how", ["close", "shutdown", "reset"])
def test_any_end_of_a_link_is_its_end_once_after_its_bytes(bench: Bench, how: str) -> None:
    handle, peer = bench.pair(LINK, "tcp" if how == "reset" else "unix")
    peer.sendall(b"last words")
    bench.until_call("link_received", handle, b"last words")
    if how == "shutdown":
        peer.sendall(b"x" * (LINK_RECEIVE_BYTES // 4))
        peer.shutdown(socket.SHUT_WR)
    elif how == "close":
        peer.sendall(b"x" * (LINK_RECEIVE_BYTES // 4))
        peer.close()
    else:
        reset(peer)
    bench.until_call("link_ended", handle)
    assert bench.names(handle)[-1] == "link_ended"
    assert len(bench.core.bytes_of[handle]) in (10, 10 + LINK_RECEIVE_BYTES // 4)
    assert how == "reset" or len(bench.core.bytes_of[handle]) > 10
    bench.assert_quiet()
    bench.reactor.flush([handle, b"nobody hears this"])
    bench.assert_quiet()
    assert bench.ends(handle) == ["link_ended"]


def test_a_paused_link_whose_peer_is_gone_ends_at_once_and_for_good(epoll_bench: Bench) -> None:
    handle, peer = epoll_bench.pair(LINK)
    epoll_bench.reactor.pause(handle)
    peer.sendall(b"never read")
    peer.close()
    epoll_bench.until_call("link_ended", handle)
    epoll_bench.reactor.resume(handle)
    epoll_bench.assert_quiet()
    assert epoll_bench.core.calls == [("link_ended", handle)]


def test_those_who_leave_are_handled_before_those_who_ask(epoll_bench: Bench) -> None:
    asking = [epoll_bench.pair() for _ in range(5)]
    leaving, leaving_peer = epoll_bench.pair()
    for _, peer in asking:
        peer.sendall(b"reserve\r\n")
    leaving_peer.shutdown(socket.SHUT_WR)
    epoll_bench.poll()
    assert epoll_bench.core.calls[0] == ("ended", leaving)
    assert len(epoll_bench.core.calls) == 6


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_urgent_bytes_are_no_reason_to_spin_and_do_not_stop_the_stream(bench: Bench, family: str) -> None:
    handle, peer = bench.pair(CLIENT, family)
    for text in (b"", b"abc"):
        peer.sendall(text)
        try:
            peer.send(b"!", socket.MSG_OOB)
        except OSError as error:
            assert family == "unix" and error.errno == errno.EOPNOTSUPP  # an older kernel
        bench.until(lambda wanted=text: bench.core.bytes_of.get(handle, b"") == wanted)  # type: ignore[misc]
        bench.assert_quiet()
    peer.sendall(b"def")
    bench.until(lambda: bench.core.bytes_of[handle] == b"abcdef")
    bench.assert_quiet()


# ---------------------------------------------------------------- sending


def test_an_outbox_keeps_the_order_of_each_handle(bench: Bench) -> None:
    (one, one_peer), (other, other_peer) = bench.pair(), bench.pair(LINK)
    outbox: list[Any] = []
    for i in range(3_000):  # more pieces than one sendmsg takes
        outbox += [one, b"a%d," % i]
        if i % 2:
            outbox += [other, b"b%d," % i, one, b""]
    bench.reactor.flush(outbox)
    wanted = b"".join(b"a%d," % i for i in range(3_000))
    assert read_exactly(one_peer, len(wanted)) == wanted
    wanted = b"".join(b"b%d," % i for i in range(1, 3_000, 2))
    assert read_exactly(other_peer, len(wanted)) == wanted
    assert bench.core.calls == []
    bench.assert_quiet()


def test_an_empty_outbox_and_empty_pieces_send_nothing(bench: Bench) -> None:
    handle, peer = bench.pair()
    bench.reactor.flush([])
    bench.reactor.flush([handle, b"", handle, b""])
    bench.reactor.flush([handle, b"", handle, b"x", handle, b""])
    assert peer.recv(10) == b"x"
    assert bench.reactor.unsent(handle) == 0


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_what_a_slow_peer_does_not_take_is_kept_in_order_and_told(bench: Bench, family: str) -> None:
    pairs = [bench.pair(kind, family, send_buffer=4_096) for kind in (CLIENT, LINK, CLIENT)]
    sent: list[bytearray] = [bytearray() for _ in pairs]
    outbox: list[Any] = []
    for i in range(600):
        piece = pattern(i * 37 % 9_000, i)
        outbox += [pairs[i % 3][0], piece]
        sent[i % 3] += piece
    bench.reactor.flush(outbox[:1_000])
    bench.reactor.flush(outbox[1_000:])  # behind a rest: only kept
    assert bench.core.calls == []
    left = [bench.reactor.unsent(handle) for handle, _ in pairs]
    assert min(left) > 0
    bench.poll()
    assert bench.reactor.full or bench.core.calls
    bench.until(lambda: len(bench.core.calls) >= 3)
    for i in range(3):
        first = next(call for call in bench.core.calls if call[1] == pairs[i][0])
        assert first == ("link_unsent" if i == 1 else "unsent", pairs[i][0], left[i])
    bench.assert_quiet()
    received: list[bytearray] = [bytearray() for _ in pairs]
    give_up_ns = time.monotonic_ns() + PATIENCE_NS
    while any(len(received[i]) < len(sent[i]) for i in range(3)):
        assert time.monotonic_ns() < give_up_ns
        readable, _, _ = select.select([peer for _, peer in pairs], [], [], 0)
        for i in range(3):
            if pairs[i][1] in readable:
                received[i] += pairs[i][1].recv(70_000)
        bench.poll(NS_PER_MS)
    assert received == sent
    for handle, _ in pairs:
        bench.until(lambda handle=handle: bench.reactor.unsent(handle) == 0)  # type: ignore[misc]
        told = [call[2] for call in bench.core.calls if call[1] == handle]
        assert told[-1] == 0
        assert all(told[i] > told[i + 1] for i in range(len(told) - 1))
    bench.assert_quiet()


def test_more_behind_an_unsent_rest_is_told_again(bench: Bench) -> None:
    handle, _ = bench.pair(send_buffer=4_096)
    bench.reactor.flush([handle, b"x" * 100_000])
    bench.poll()
    first = bench.reactor.unsent(handle)
    bench.reactor.flush([handle, b"y" * 50])
    bench.poll()
    assert bench.core.calls == [("unsent", handle, first), ("unsent", handle, first + 50)]


def test_a_half_closed_client_with_a_full_window_is_waited_for_without_a_spin(bench: Bench) -> None:
    handle, peer = bench.pair(CLIENT, "tcp", send_buffer=4_096)
    data = pattern(700_000)
    peer.shutdown(socket.SHUT_WR)
    bench.until_call("ended", handle)
    bench.reactor.flush([handle, data])
    bench.until(lambda: "unsent" in bench.names(handle))
    for _ in range(40):  # loopback goes on moving bytes for a moment, until the window is full
        before = len(bench.core.calls)
        bench.poll(5 * NS_PER_MS)
        if len(bench.core.calls) == before and not bench.reactor.full:
            break
    bench.assert_quiet()
    assert bench.read_while_polling(peer, len(data)) == data


def test_sends_to_a_peer_that_does_not_listen_fail_after_its_bytes_were_read(bench: Bench) -> None:
    handle, peer = bench.pair()
    peer.sendall(b"x" * (CLIENT_RECEIVE_BYTES + 1))
    peer.shutdown(socket.SHUT_RD)
    bench.reactor.flush([handle, b"a reply", handle, b"another"])
    bench.reactor.flush([handle, b"more"])
    assert bench.reactor.unsent(handle) == 0
    bench.until_call("failed", handle)
    assert bench.names(handle) == ["received", "received", "ended", "failed"]
    bench.assert_quiet()


def test_a_failed_send_to_a_paused_client_is_told_at_once(bench: Bench) -> None:
    handle, peer = bench.pair()
    bench.reactor.pause(handle)
    peer.sendall(b"kept")
    peer.shutdown(socket.SHUT_RD)
    bench.reactor.flush([handle, b"a reply"])
    bench.poll()
    assert bench.core.calls == [("ended", handle), ("failed", handle)]
    bench.assert_quiet()
    bench.reactor.resume(handle)
    bench.until_call("received", handle, b"kept")


def test_a_failed_send_ends_a_link_after_its_bytes(bench: Bench) -> None:
    handle, peer = bench.pair(LINK)
    peer.sendall(b"frame")
    peer.shutdown(socket.SHUT_RD)
    bench.reactor.flush([handle, b"x"])
    bench.until_call("link_ended", handle)
    assert bench.core.calls == [("link_received", handle, b"frame"), ("link_ended", handle)]
    bench.assert_quiet()


def test_a_rest_is_dropped_when_its_peer_fails(bench: Bench) -> None:
    handle, peer = bench.pair(CLIENT, "tcp", send_buffer=4_096)
    bench.reactor.flush([handle, b"x" * 2_000_000])
    bench.until(lambda: "unsent" in bench.names(handle))
    reset(peer)
    bench.until_call("failed", handle)
    assert bench.reactor.unsent(handle) == 0
    assert bench.ends(handle) == ["ended", "failed"]
    bench.assert_quiet()


def test_an_outbox_with_something_else_in_it_is_refused_before_anything_is_sent(bench: Bench) -> None:
    handle, peer = bench.pair()
    peer.setblocking(False)
    for outbox, problem in (
        ([handle, b"x", handle], ValueError),
        ([handle, b"x", handle, "text"], TypeError),
        ([handle, b"x", handle, bytearray(b"y")], TypeError),
        ([handle, b"x", 10_000, b"y"], ValueError),
        ([handle, b"x", -1, b"y"], ValueError),
    ):
        with pytest.raises(problem):
            bench.reactor.flush(outbox)
        with pytest.raises(BlockingIOError):
            peer.recv(1)
    bench.reactor.flush([handle, b"x"])
    assert peer.recv(10) == b"x"


# ---------------------------------------------------------------- closing and handles


def test_a_client_closed_with_a_rest_still_gets_it(bench: Bench) -> None:
    handle, peer = bench.pair(send_buffer=4_096)
    data = pattern(300_000)
    bench.reactor.flush([handle, data])
    bench.reactor.close(handle)
    assert bench.reactor.closing_count == 1
    assert bench.reactor.unsent(handle) > 0
    bench.reactor.flush([handle, b"neither is this sent"])
    other, _ = bench.pair()
    assert other != handle
    bench.assert_quiet()
    assert bench.read_while_polling(peer, len(data)) == data
    bench.until(lambda: bench.reactor.closing_count == 0)
    assert peer.recv(1) == b""
    assert bench.reactor.in_use() == 1
    assert bench.pair()[0] == handle
    assert bench.core.calls == []


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_a_client_closed_with_a_rest_is_dropped_when_its_peer_fails(bench: Bench, family: str) -> None:
    handle, peer = bench.pair(CLIENT, family, send_buffer=4_096)
    bench.reactor.flush([handle, b"x" * 2_000_000])
    bench.reactor.close(handle)
    peer.sendall(b"not read any more")
    bench.poll()
    reset(peer)
    bench.until(lambda: bench.reactor.closing_count == 0)
    assert bench.reactor.in_use() == 0
    assert bench.core.calls == []


def test_a_paused_client_that_closed_while_a_rest_was_unsent_can_be_closed(epoll_bench: Bench) -> None:
    handle, peer = epoll_bench.pair(send_buffer=4_096)
    epoll_bench.reactor.flush([handle, b"x" * 100_000])
    epoll_bench.reactor.pause(handle)
    peer.close()
    epoll_bench.until_call("failed", handle)
    epoll_bench.reactor.close(handle)
    assert epoll_bench.reactor.in_use() == 0


def test_a_closed_links_rest_is_dropped(bench: Bench) -> None:
    handle, peer = bench.pair(LINK, send_buffer=4_096)
    bench.reactor.flush([handle, b"x" * 1_000_000])
    assert bench.reactor.unsent(handle) > 0
    bench.reactor.close(handle)
    assert bench.reactor.closing_count == 0
    assert bench.reactor.in_use() == 0
    assert bench.reactor.unsent(handle) == 0
    assert len(read_exactly(peer, 1)) == 1
    bench.assert_quiet()
    assert bench.core.calls == []


def test_what_is_sent_to_a_closed_handle_is_dropped(bench: Bench) -> None:
    handle, peer = bench.pair()
    bench.reactor.close(handle)
    bench.reactor.flush([handle, b"too late"])
    assert peer.recv(1) == b""
    bench.reactor.pause(handle)
    bench.reactor.resume(handle)
    bench.assert_quiet()


def test_a_handle_is_closed_once_and_by_its_own_method(bench: Bench) -> None:
    handle, _ = bench.pair()
    reading, writing = os.pipe()
    raw = bench.reactor.add(reading, RAW)
    for wrong in (
        lambda: bench.reactor.close(raw),
        lambda: bench.reactor.remove(handle),
        lambda: bench.reactor.close(99),
        lambda: bench.reactor.close(-1),
        lambda: bench.reactor.pause(99),
        lambda: bench.reactor.resume(-1),
        lambda: bench.reactor.unsent(99),
    ):
        with pytest.raises(ValueError):
            wrong()
    bench.reactor.close(handle)
    bench.reactor.remove(raw)
    with pytest.raises(ValueError):
        bench.reactor.close(handle)
    with pytest.raises(ValueError):
        bench.reactor.remove(raw)
    os.close(reading)
    os.close(writing)


def test_handles_are_small_and_used_again(bench: Bench) -> None:
    handles = [bench.pair()[0] for _ in range(40)]
    assert handles == list(range(40))
    for handle in (3, 17, 29):
        bench.reactor.close(handle)
    assert sorted(bench.pair()[0] for _ in range(3)) == [3, 17, 29]
    assert bench.reactor.in_use() == 40


def test_a_descriptor_that_cannot_be_watched_stays_the_callers(bench: Bench) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    os.close(reading)
    with pytest.raises((OSError, ValueError)):
        bench.reactor.add(reading, CLIENT)
    assert bench.reactor.in_use() == 0
    assert bench.pair()[0] == 0


def test_events_for_a_handle_closed_earlier_in_the_batch_are_ignored(bench: Bench) -> None:
    pairs = {}
    for _ in range(6):
        handle, peer = bench.pair()
        peer.sendall(b"x")
        pairs[handle] = peer
    added: list[int] = []

    def replace_all_others(call: str, handle: int) -> None:
        """Close the others and add new ones at once: these get the same handles and the same descriptors."""
        for other in pairs:
            if other != handle:
                bench.reactor.close(other)
        for _ in range(5):
            added.append(bench.pair()[0])

    bench.core.reaction = replace_all_others
    bench.poll()
    bench.core.reaction = None
    assert len(bench.core.calls) == 1
    assert sorted(added + [bench.core.calls[0][1]]) == sorted(pairs)
    bench.assert_quiet()


def test_a_core_may_close_a_handle_in_any_of_its_callbacks(bench: Bench) -> None:
    bench.core.reaction = lambda call, handle: bench.reactor.close(handle)
    received, peer = bench.pair()
    peer.sendall(b"x")
    peer.close()
    bench.until(lambda: bench.reactor.in_use() == 0)
    assert bench.core.calls == [("received", received, b"x")]

    bench.core.calls.clear()
    ended, peer = bench.pair()
    peer.close()
    bench.until(lambda: bench.reactor.in_use() == 0)
    assert bench.core.calls == [("ended", ended)]  # and not failed

    bench.core.calls.clear()
    unsent, peer = bench.pair(send_buffer=4_096)
    bench.reactor.flush([unsent, b"x" * 100_000])
    bench.until(lambda: len(bench.core.calls) == 1)
    assert bench.reactor.closing_count == 1
    peer.close()
    bench.until(lambda: bench.reactor.in_use() == 0)
    assert len(bench.core.calls) == 1

    bench.core.calls.clear()
    link, peer = bench.pair(LINK)
    peer.close()
    bench.until(lambda: bench.reactor.in_use() == 0)
    assert bench.core.calls == [("link_ended", link)]


def test_a_core_may_add_many_handles_and_flush_in_a_callback(bench: Bench) -> None:
    first, first_peer = bench.pair()
    second, second_peer = bench.pair()

    def answer(call: str, handle: int) -> None:
        if bench.reactor.in_use() < 100:
            for _ in range(100):
                bench.pair()
        bench.reactor.flush([first, b"one", second, b"two"])

    bench.core.reaction = answer
    first_peer.sendall(b"x")
    second_peer.sendall(b"y")
    bench.until(lambda: len(bench.core.calls) == 2)
    assert read_exactly(first_peer, 6) == b"oneone"
    assert read_exactly(second_peer, 6) == b"twotwo"


def test_a_socket_that_another_process_still_has_is_forgotten_when_closed(bench: Bench) -> None:
    own, peer = socket.socketpair()
    bench.peers += [peer, own.dup()]  # as if inherited: closing one descriptor does not close the socket
    handle = bench.reactor.add(own.detach(), CLIENT)
    bench.reactor.close(handle)
    peer.sendall(b"x")
    bench.assert_quiet()
    assert bench.core.calls == []


# ---------------------------------------------------------------- raw descriptors


def test_a_raw_descriptor_is_reported_while_readable_and_stays_the_callers(bench: Bench) -> None:
    reading, writing = os.pipe()
    handle = bench.reactor.add(reading, RAW)
    bench.assert_quiet()
    os.write(writing, b"x")
    assert bench.poll(PATIENCE_NS) == [handle]
    assert bench.poll(PATIENCE_NS) == [handle]
    bench.reactor.pause(handle)
    bench.assert_quiet()
    bench.reactor.resume(handle)
    assert bench.poll(PATIENCE_NS) == [handle]
    assert os.read(reading, 10) == b"x"
    bench.assert_quiet()
    os.close(writing)
    assert bench.poll(PATIENCE_NS) == [handle]  # its end is something to read as well
    bench.reactor.pause(handle)
    bench.assert_quiet()
    bench.reactor.resume(handle)
    assert bench.poll(PATIENCE_NS) == [handle]
    bench.reactor.remove(handle)
    bench.assert_quiet()
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_listener_is_a_raw_descriptor(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        handle = bench.reactor.add(listener.fileno(), RAW)
        with socket.create_connection(listener.getsockname()):
            assert bench.poll(PATIENCE_NS) == [handle]
        bench.reactor.remove(handle)


# ---------------------------------------------------------------- time


def test_a_poll_never_returns_before_its_time(bench: Bench) -> None:
    for timeout_ns in (1, 300_000, NS_PER_MS, 1_700_000, 7 * NS_PER_MS):
        for _ in range(5):
            before_ns = bench.reactor.now_ns()
            bench.poll(timeout_ns)
            assert bench.reactor.now_ns() - before_ns >= timeout_ns


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
    import threading

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


def test_an_exception_of_the_core_leaves_poll_and_loses_nothing_of_the_others(bench: Bench) -> None:
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


# ---------------------------------------------------------------- all of it at once


class Walk:
    """Random peers and a random core over a few connections, with what must hold for every one of them."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.peers: dict[int, socket.socket] = {}  # open handles; a peer of -1 is closed
        self.sent: dict[int, bytearray] = {}
        self.got: dict[int, bytearray] = {}
        self.replied: dict[int, bytearray] = {}
        self.peer_open: dict[int, bool] = {}
        self.words: dict[int, list[str]] = {}
        bench.core.reaction = self.check_call

    def check_call(self, call: str, handle: int) -> None:
        assert handle in self.peers, "a call for a handle that was closed"
        words = self.words[handle]
        if call in ("ended", "failed"):
            assert call not in words
            assert call == "ended" or "ended" in words
            words.append(call)
            assert not self.peer_open[handle]
        elif call == "received":
            assert bytes(self.bench.core.bytes_of[handle]) == self.sent[handle][: len(self.bench.core.bytes_of[handle])]
        if self.random.random() < 0.05:
            self.close(handle)

    def open(self) -> None:
        handle, peer = self.bench.pair(CLIENT, self.random.choice(("unix", "tcp")), self.random.choice((0, 4_096)))
        assert handle not in self.peers
        peer.setblocking(False)
        self.peers[handle] = peer
        self.sent[handle] = bytearray()
        self.replied[handle] = bytearray()
        self.got[handle] = bytearray()
        self.peer_open[handle] = True
        self.words[handle] = []
        self.bench.core.bytes_of[handle] = bytearray()

    def close(self, handle: int) -> None:
        self.bench.reactor.close(handle)
        self.peers.pop(handle)

    def step(self) -> None:
        if len(self.peers) < 3 or self.random.random() < 0.05:
            self.open()
        handle = self.random.choice(sorted(self.peers))
        peer = self.peers[handle]
        action = self.random.choice(
            ("send", "send", "send", "reply", "reply", "reply", "read", "read", "pause", "resume", "resume", "end", "close")
        )
        if action == "send" and self.peer_open[handle]:
            data = self.random.randbytes(self.random.choice((1, 100, 5_000, 100_000)))
            try:
                self.sent[handle] += data[: peer.send(data)]
            except BlockingIOError:
                pass
        elif action == "reply":
            pieces = [self.random.randbytes(self.random.choice((0, 10, 3_000, 90_000))) for _ in range(3)]
            other = self.random.choice(sorted(self.peers))
            outbox: list[Any] = []
            for piece in pieces:
                outbox += [handle, piece, other, piece]
                self.replied[handle] += piece
                self.replied[other] += piece
            self.bench.reactor.flush(outbox)
        elif action == "read" and peer.fileno() >= 0:
            self.read(handle)
        elif action == "pause":
            self.bench.reactor.pause(handle)
        elif action == "resume":
            self.bench.reactor.resume(handle)
        elif action == "end" and self.peer_open[handle] and self.random.random() < 0.3:
            self.peer_open[handle] = False
            self.random.choice((lambda: peer.shutdown(socket.SHUT_WR), peer.close, lambda: reset(peer)))()
        elif action == "close" and self.random.random() < 0.3:
            self.close(handle)
        if self.random.random() < 0.7:
            self.bench.poll(self.random.choice((0, 0, NS_PER_MS)))

    def read(self, handle: int) -> None:
        try:
            self.got[handle] += self.peers[handle].recv(100_000)
        except (BlockingIOError, ConnectionResetError):
            pass
        assert bytes(self.got[handle]) == self.replied[handle][: len(self.got[handle])]

    def finish(self) -> None:
        """All is read in the end: whoever is still there has every byte, in both directions."""
        for handle in sorted(self.peers):
            self.bench.reactor.resume(handle)
        self.random = random.Random(0)
        self.bench.core.reaction = None
        give_up_ns = time.monotonic_ns() + PATIENCE_NS
        for handle, peer in sorted(self.peers.items()):
            whole = peer.fileno() >= 0
            while whole and (
                len(self.got[handle]) < len(self.replied[handle])
                or len(self.bench.core.bytes_of[handle]) < len(self.sent[handle])
            ):
                assert time.monotonic_ns() < give_up_ns
                self.read(handle)
                self.bench.poll(0)
            if whole:
                assert self.bench.core.bytes_of[handle] == self.sent[handle]
        for handle in sorted(self.peers):
            self.bench.reactor.close(handle)


@pytest.mark.parametrize("seed", range(12))
def test_a_random_walk_keeps_every_stream_whole(bench: Bench, seed: int) -> None:
    walk = Walk(bench, seed)
    for _ in range(400):
        walk.step()
    walk.finish()


# ---------------------------------------------------------------- many

CONNECT_MANY = """
import resource, socket, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
peers = []
for _ in range(int(sys.argv[2])):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(b"\\0" + sys.argv[1].encode())
    peers.append(peer)
print("connected", flush=True)
sys.stdin.readline()
for peer in peers[::100]:
    peer.sendall(b"hello")
sys.stdin.readline()
"""


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_ten_thousand_idle_connections_cost_little_memory_and_no_time(bench: Bench) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = min(10_000, hard - 500)
    name = f"beanfield-test-{os.getpid()}-{bench.name}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0" + name.encode())
        listener.listen(1_024)
        child = subprocess.Popen(
            [sys.executable, "-c", CONNECT_MANY, name, str(wanted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdin is not None and child.stdout is not None
        try:
            accepted = []
            for _ in range(wanted):
                connection, _ = listener.accept()
                accepted.append(connection.detach())
            assert child.stdout.readline() == b"connected\n"
            before = resident_bytes()
            handles = [bench.reactor.add(fd, CLIENT) for fd in accepted]
            per_handle = (resident_bytes() - before) / wanted
            assert handles == list(range(wanted))
            # Half of it is the list of handles just made; an entry has 48 bytes natively, and is two objects otherwise.
            assert per_handle < (250 if bench.name == "native" else 2_000)
            bench.assert_quiet()
            child.stdin.write(b"\n")
            child.stdin.flush()
            bench.until(lambda: len(bench.core.calls) == len(range(0, wanted, 100)))
            bench.assert_quiet()
            child.communicate(b"\n", timeout=60)  # all leave at once
            bench.until(lambda: sum(call[0] == "ended" for call in bench.core.calls) == wanted)
            for handle in handles:
                bench.reactor.close(handle)
            assert bench.reactor.in_use() == 0
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
            bench.reactor.shut_down()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
