"""Outboxes: order, what a slow peer does not take, and sends that fail."""

import select
import socket
import time
from typing import Any

import pytest

from beanfield.constants import CLIENT_RECEIVE_BYTES, NS_PER_MS
from beanfield.io.reactor import CLIENT, LINK
from tests.unit.reactor.bench import PATIENCE_NS, Bench, pattern, read_exactly, reset


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


def test_the_word_about_unsent_bytes_does_not_wait_for_an_event(bench: Bench) -> None:
    handle, peer = bench.pair(send_buffer=4_096)
    bench.reactor.flush([handle, b"x" * 100_000])
    before_ns = time.monotonic_ns()
    bench.poll(PATIENCE_NS)
    assert bench.names(handle) == ["unsent"]
    peer.shutdown(socket.SHUT_RD)
    bench.poll()
    other, other_peer = bench.pair(LINK)
    other_peer.shutdown(socket.SHUT_RD)
    bench.reactor.flush([other, b"x"])
    bench.poll(PATIENCE_NS)
    assert bench.names(other) == ["link_ended"]
    assert time.monotonic_ns() - before_ns < PATIENCE_NS // 2


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
