"""The frontend's core with its owner's core behind it: what a socket between them would do is done all the same."""

from beanfield.combined.core import OWNER_END, CombinedCore
from beanfield.constants import LINK_UNSENT_BYTES_HIGH, NS_PER_S, TURN_RECEIVE_BYTES_MAX
from beanfield.frontend.state import FrontendConfig
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.routing import Topology
from beanfield.wal.journal import Journal
from tests.unit.frontend_driver import RUN_ID, Pages

BODY = b"x" * 60_000
PUT = b"put 0 0 10 %d\r\n%b\r\n" % (len(BODY), BODY)
CLIENTS = 60


class Combined:
    """A combined core with its loop's part, and CLIENTS clients."""

    def __init__(self) -> None:
        self.now = 100 * NS_PER_S
        topology = Topology(16, 1)
        self.journal = Journal()
        self.owner = OwnerCore(OwnerConfig(0, 1, RUN_ID, topology, 0, 0, 1 << 40), self.journal)
        pages = Pages()
        config = FrontendConfig(0, 1, RUN_ID, topology, 65_535, 10 * NS_PER_S, 1 << 28, b"1.13", b"a" * 16)
        self.core = CombinedCore(config, pages, self.owner)
        pages.counters = self.core.counters
        self.replies: dict[int, bytes] = {}
        self.core.connect(self.now)
        self.turn()
        for client in range(CLIENTS):
            self.core.client_opened(client, self.now)
        self.turn()

    def turn(self) -> None:
        """Turns until the core asks for no more at once, or waits for its journal."""
        for _ in range(1_000):
            self.core.turn(self.now)
            outbox = self.core.take_outbox()
            for handle, data in zip(outbox[::2], outbox[1::2], strict=True):
                assert isinstance(handle, int) and isinstance(data, bytes)
                self.replies[handle] = self.replies.get(handle, b"") + data
            self.core.take_actions()
            if self.core.next_deadline_ns() != 0:
                return
        raise AssertionError("the core never comes to rest")


def test_what_comes_at_once_from_many_clients_is_answered_without_another_event() -> None:
    c = Combined()
    assert CLIENTS * len(PUT) > 3 * LINK_UNSENT_BYTES_HIGH
    for client in range(CLIENTS):
        c.core.client_received(client, PUT, c.now)
    c.turn()
    assert sorted(c.replies) == list(range(CLIENTS))
    assert c.owner.counters.jobs_ready == CLIENTS


def test_an_owner_that_waits_for_its_disk_is_not_handed_all_that_clients_send() -> None:
    c = Combined()
    c.journal.stalled = True
    for _ in range(4):
        for client in range(CLIENTS):
            c.core.client_received(client, PUT, c.now)
        c.turn()
    assert c.owner.unread_bytes(OWNER_END) <= LINK_UNSENT_BYTES_HIGH + len(BODY) + TURN_RECEIVE_BYTES_MAX // 4
    assert c.replies == {}
    c.journal.stalled = False
    c.turn()
    assert c.owner.counters.jobs_ready == 4 * CLIENTS
    assert b"".join(c.replies.values()).count(b"INSERTED") == 4 * CLIENTS
