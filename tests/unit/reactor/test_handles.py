"""Closing with and without a rest, handles used again, stale events, raw descriptors."""

import os
import socket

import pytest

from beanfield.io.reactor import CLIENT, LINK, RAW
from tests.unit.reactor.bench import PATIENCE_NS, Bench, pattern, read_exactly, reset

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
    for method, wrong in (
        (bench.reactor.close, raw),
        (bench.reactor.remove, handle),
        (bench.reactor.close, 99),
        (bench.reactor.close, -1),
        (bench.reactor.pause, 99),
        (bench.reactor.resume, -1),
        (bench.reactor.unsent, 99),
    ):
        with pytest.raises(ValueError):
            method(wrong)
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


def test_events_for_a_handle_closed_earlier_in_the_batch_are_ignored(one_by_one: Bench) -> None:
    bench = one_by_one
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
