"""Sixty thousand tubes in one server: lists of megabytes in pieces, and nothing that searches them."""

from beanfield.constants import CHUNK_BYTES, NS_PER_S
from beanfield.engine.invariants import check_engine
from beanfield.ipc import frames
from tests.unit.owner_driver import TOPOLOGY, Owner

TUBES = 60_000


def test_sixty_thousand_tubes_are_listed_in_order_and_vanish_with_their_jobs() -> None:
    owner = Owner()
    end = owner.link()
    end.attach(1)
    names = [name for name in (b"incoming-emails-%d" % n for n in range(2 * TUBES)) if TOPOLOGY.slot_of_name(name) == 0]
    names = names[:TUBES]
    request = 0
    for name in names:
        end.words(frames.USE, 1, request + 1, body=name)
        end.words(frames.PUT, 1, request + 2, 0, 0, 10 * NS_PER_S, body=b"")
        request += 2
        if request % 500 == 0:
            end.take()
    end.take()
    assert owner.core.counters.tubes == len(names) + 1
    end.plain(frames.LIST_TUBES, 1, request + 1)
    first = end.take()[0]
    total, text = first.words(1)[0], first.payload[8:]
    while len(text) < total:
        end.plain(frames.MORE, 1, request + 1)
        piece = end.take()[0].payload
        assert 0 < len(piece) <= CHUNK_BYTES
        text += piece
    listed = []
    at = 0
    while at < len(text):
        name_bytes = int.from_bytes(text[at + 8 : at + 16], "little")
        listed.append(text[at + 16 : at + 16 + name_bytes])
        at += 16 + name_bytes
    assert listed == [b"default", *names]
    end.words(frames.STATS_TUBE, 1, request + 2, body=names[-1])
    assert b"current-jobs-ready: 1\n" in end.take()[0].payload
    for sequence, name in enumerate(names[:1_000]):
        end.words(frames.DELETE, 1, request + 3 + sequence, sequence * 16 + int(TOPOLOGY.partition_of(name)) + 1)
        if sequence % 500 == 0:
            end.take()
    end.take()
    assert owner.core.counters.tubes == len(names) + 1 - 1_000
    check_engine(owner.core.engine)
