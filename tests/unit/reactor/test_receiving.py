"""Bytes from clients and links, how much of them a turn takes, and the end of a peer."""

import errno
import socket

import pytest

from beanfield.constants import CLIENT_RECEIVE_BYTES, LINK_RECEIVE_BYTES
from beanfield.io.reactor import CLIENT, LINK
from tests.unit.reactor.bench import Bench, pattern, read_exactly, reset

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


def test_a_pause_inside_a_callback_holds_for_the_rest_of_the_batch(one_by_one: Bench) -> None:
    bench = one_by_one
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
def test_the_end_of_a_paused_client_is_told_at_once_and_its_bytes_when_resumed(epoll_bench: Bench, family: str) -> None:
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
