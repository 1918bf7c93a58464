"""What clients have sent is told in batches, and before anything else that the core is told."""

from collections.abc import Iterator

import pytest

from beanfield.io.reactor import CLIENT, LINK
from tests.unit.reactor.bench import BatchCore, Bench, available, run_bench


class Batches:
    """A bench with its core, by its type."""

    def __init__(self, bench: Bench, core: BatchCore) -> None:
        self.bench = bench
        self.core = core


@pytest.fixture(params=available())
def made(request: pytest.FixtureRequest) -> Iterator[Batches]:
    core = BatchCore()
    for bench in run_bench(request.param, core):
        yield Batches(bench, core)


def test_many_clients_make_one_batch(made: Batches) -> None:
    pairs = [made.bench.pair() for _ in range(10)]
    for _, peer in pairs:
        peer.send(b"x")
    made.bench.poll()
    assert [sorted(batch) for batch in made.core.batches] == [sorted(handle for handle, _ in pairs)]
    made.bench.poll()
    assert len(made.core.batches) == 1


def test_a_link_comes_after_the_clients_before_it_and_before_those_behind(made: Batches) -> None:
    first, first_peer = made.bench.pair()
    link, link_peer = made.bench.pair(LINK)
    last, last_peer = made.bench.pair()
    for peer in (first_peer, link_peer, last_peer):
        peer.send(b"x")
    made.bench.poll()
    told = [call[:2] for call in made.core.calls]
    assert sorted(told) == sorted([("received", first), ("link_received", link), ("received", last)])
    # The order is the poller's. What was received before the link is told before it.
    at = told.index(("link_received", link))
    assert sum(map(len, made.core.batches[:1])) == (at if at > 0 else 2)


def test_an_end_comes_behind_the_bytes(made: Batches) -> None:
    handle, peer = made.bench.pair()
    other, other_peer = made.bench.pair()
    other_peer.send(b"y")
    peer.send(b"x")
    peer.close()
    made.bench.until(lambda: bool(made.bench.ends(handle)))
    assert made.bench.names(handle)[:2] == ["received", "ended"]
    made.bench.until_call("received", other, b"y")


def test_of_a_client_closed_by_a_batch_nothing_more_is_told(made: Batches) -> None:
    handle, peer = made.bench.pair()
    peer.send(b"x")
    made.bench.poll()
    peer.send(b"y")
    peer.close()
    made.core.reaction = lambda call, told: made.bench.reactor.close(told) if call == "received" else None
    made.bench.until(lambda: made.bench.names(handle).count("received") == 2)
    made.bench.poll()
    made.bench.poll()
    assert made.bench.ends(handle) == []


def test_an_exception_out_of_another_callback_loses_no_batch(made: Batches) -> None:
    """Received is received: it is told in the next poll at the latest."""
    link, link_peer = made.bench.pair(LINK)
    handle, peer = made.bench.pair()

    def fail(call: str, told: int) -> None:
        if call == "link_received":
            raise ZeroDivisionError

    made.core.reaction = fail
    link_peer.send(b"x")
    peer.send(b"y")
    with pytest.raises(ZeroDivisionError):
        made.bench.poll()
    made.core.reaction = None
    made.bench.until_call("received", handle, b"y")
    assert bytes(made.core.bytes_of[handle]) == b"y"


def test_a_link_paused_by_a_batch_is_not_read(made: Batches) -> None:
    handle, peer = made.bench.pair()
    link, link_peer = made.bench.pair(LINK)
    made.core.reaction = lambda call, told: made.bench.reactor.pause(link) if call == "received" else None
    for _ in range(20):
        # Whichever the poller reports first: once the client is told before the link, the link waits.
        peer.send(b"x")
        link_peer.send(b"y")
        made.bench.poll()
        if made.core.calls[-1][:2] == ("received", handle):
            before = list(made.core.calls)
            link_peer.send(b"z")
            made.bench.poll()
            assert made.core.calls == before
        made.bench.reactor.resume(link)
    made.core.reaction = None
    made.bench.until(lambda: bytes(made.core.bytes_of[link]).count(b"y") == 20)


def test_what_a_turn_may_receive_holds_for_batches_and_links_together(made: Batches) -> None:
    made.bench.reactor.shut_down()
    made.bench.reactor = made.bench.new_reactor(turn_receive_bytes_max=2)
    pairs = [made.bench.pair(LINK if number % 3 == 0 else CLIENT) for number in range(9)]
    for _, peer in pairs:
        peer.send(b"x")
    for turn in range(5):
        made.bench.poll()
        assert len(made.core.calls) == min(2 * (turn + 1), 9)
    assert sorted(call[1] for call in made.core.calls) == sorted(handle for handle, _ in pairs)
