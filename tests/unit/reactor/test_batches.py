"""What clients have sent is told in batches, and before anything else that the core is told."""

from collections.abc import Iterator

import pytest

from beanfield.io.reactor import LINK
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
