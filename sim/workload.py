"""Clients that do everything clients may do: produce, work, pipeline, dawdle, leave, and say nonsense."""

from random import Random
from typing import TYPE_CHECKING

from beanfield.ipc.frames import ROLE_OWNER
from sim import client as say
from sim.checkers import Inspector
from sim.client import Command, SimClient
from sim.ledger import Ledger
from sim.process import SimProcess
from sim.world import NS_PER_MS, NS_PER_S, NS_PER_US

if TYPE_CHECKING:
    from sim.server import Server

OUTSTANDING_MAX = 100
AIM_SHARE = 0.4
AIMED_MAX = 2
NONSENSE = (
    (b"stats-job\r\n", "bad"),
    (b"reserve-with-timeout 2147483648\r\n", "bad"),
    (b"put 1 2 3\r\n", "bad"),
    (b"delete 99999999999999999999999\r\n", "bad"),
    (b"watch -nope\r\n", "bad"),
    (b"x" * 300 + b"\r\n", "bad"),
    (b"\r\n", "unknown"),
    (b"delete\r\n", "unknown"),
    (b"FOO bar\r\n", "unknown"),
)


class Workload:
    """All clients of a run. Each has its own rhythm; new ones come for those that leave."""

    def __init__(self, server: "Server", inspector: Inspector) -> None:
        self.server = server
        self.world = server.world
        self.inspector = inspector
        self.options = server.options
        self.random: Random = server.world.random("workload")
        self.aimer: SimClient | None = None
        self.aim_random: Random = server.world.side_random("aim")
        self.ledger = Ledger(server.topology)
        self.clients: list[SimClient] = []
        self.tubes = [b"default", b"emails", b"a", b"0", b"Emails", b"A", b"a-b+c/d;e.f$g_h(i)", b"x" * 200]
        self.tubes = self.tubes[: self.options.tubes]
        self.running = True
        self.names = 0

    # ---------------------------------------------------------------- coming and going
    def start(self) -> None:
        for _ in range(self.options.clients):
            self.world.after(self.random.randrange(200 * NS_PER_MS), self.connect)

    def connect(self) -> None:
        if self.running:
            client = self.new_client()
            if self.random.random() < self.options.slow:
                client.slow_bytes = self.random.choice((1, 20, 500, 20_000))
            if self.options.aims:
                for tube in self.tubes:  # every reserve is one over several owners
                    self.send(client, say.with_tube("watch", tube))
            self._go_on(client)

    def new_client(self) -> SimClient:
        self.names += 1
        client = SimClient(self.server, f"c{self.names}", self._answered, self._ended)
        self.clients.append(client)
        return client

    def process_ended(self, process: SimProcess) -> None:
        """Clients whose connection may close for that."""
        for client in self.clients:
            if process.role == ROLE_OWNER:
                client.excuse(process.index)
            if process.is_door and client.process in (None, process):
                client.excused = client.cut_off = True
                client.broken_ns = self.world.now_ns

    def _answered(self, client: SimClient, command: Command) -> None:
        self.ledger.answer(client, command)
        if self.inspector.order is not None:
            self.inspector.order.answered(client, command)

    def _ended(self, client: SimClient) -> None:
        self.ledger.client_over(client)
        self.clients.remove(client)
        if self.running:
            self.world.after(self.random.randrange(1, 500 * NS_PER_MS), self.connect)

    # ---------------------------------------------------------------- speaking
    def _go_on(self, client: SimClient) -> None:
        random = self.random
        if not self.running or not client.may_speak():
            return
        self._be_rude(client)
        if not client.may_speak():
            return
        room = min(self.options.pipelining, OUTSTANDING_MAX) - len(client.outstanding)
        for _ in range(random.randrange(room + 1) if room > 0 else 0):
            self.send(client, self.choose(client))
            if not client.may_speak():
                return
        pause_ns = random.choice((1, 20, 200, 1_000)) * NS_PER_MS
        if self.options.crowd:
            pause_ns = 3 * NS_PER_MS
        self.world.after(random.randrange(1, pause_ns), lambda: self._go_on(client))

    def send(self, client: SimClient, command: Command) -> None:
        self.ledger.sent(client, command)
        client.send(command)
        self.inspector.note_for(client)
        if self.inspector.order is not None and command.verb in ("reserve", "reserve-with-timeout"):
            self.inspector.order.said(client, command)

    def _be_rude(self, client: SimClient) -> None:
        random = self.random
        if random.random() >= self.options.rude:
            return
        manner = random.randrange(5)
        if manner == 0 and not client.unsent:
            client.half_close()
            self.ledger.let_go(client)
        elif manner == 1:
            # A command half said, a body half sent.
            command = self.choose(client)
            self.ledger.sent(client, command)
            cut = random.randrange(1, len(command.line))
            client.unsent += command.line[:cut]
            client._write()
            client.leave(random.random() < 0.5)
        elif manner == 2 and client.commands_sent:
            self.send(client, say.plain("quit"))
        else:
            client.leave(random.random() < 0.5)

    def choose(self, client: SimClient) -> Command:
        """Something to say, mostly sensible."""
        random = self.random
        if random.random() < self.options.bad_input:
            line, verb = random.choice(NONSENSE)
            return Command(verb, line)
        share = random.randrange(15 if self.options.crowd else 20)
        if share < self.options.put_share:
            return self._put()
        if share < 13:
            return self._work(client)
        return self._other(client)

    def _put(self) -> Command:
        random = self.random
        size = random.choice((0, 10, 30))
        if random.random() < self.options.large_bodies:
            size = random.choice((5_000, 65_537, 300_000))
        elif self.options.disk_bodies and random.random() < self.options.disk_bodies:
            size = random.choice((500, 3_500, 3_500, 6_000))
        size = min(size, self.options.job_bytes_max - 12)
        delay_s = random.choice((0, 0, 0, 0, 1, 3))
        ttr_s = random.choice((1, 2, 5, 60))
        return say.put(self.ledger.new_body(size), random.choice((0, 1, 5, 1_024, 4_294_967_295)), delay_s, ttr_s)

    def _work(self, client: SimClient) -> Command:
        random = self.random
        held = sorted(key[1] for key in self.ledger.possible if key[0] == client.name)
        if held and random.random() < 0.7:
            id_ = random.choice(held)
            verb = random.choice(("delete", "delete", "delete", "release", "release", "bury", "touch"))
            return say.with_id(verb, id_, random.choice((0, 3, 2_000)), random.choice((0, 0, 1)))
        if self.options.crowd and random.random() < 0.1 and self.ledger.by_id:
            return say.with_id("delete", random.choice(list(self.ledger.by_id)[-6:]))
        if self.options.crowd:
            return say.reserve(random.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1)))
        timeout_s = random.choice((0, 0, 0, 1, 2, -1)) if self.options.pipelining < 16 else random.choice((0, 0, 0, 1))
        return say.reserve(timeout_s)

    def aim_at(self, id_: int) -> None:
        """A job is held for some reserve: a client that does nothing else deletes it, at once."""
        if not self.running or self.aim_random.random() >= AIM_SHARE:
            return
        if self.aimer is None or self.aimer.over:
            self.aimer = self.new_client()
        command = say.with_id("delete", id_)
        self.world.after(NS_PER_US, lambda: self._say_if_free(command))

    def _say_if_free(self, command: Command) -> None:
        client = self.aimer
        if client is not None and self.running and client.may_speak() and len(client.outstanding) < AIMED_MAX:
            self.send(client, command)

    def _other(self, client: SimClient) -> Command:
        random = self.random
        drawn = random.randrange(12)
        tube = random.choice(self.tubes)
        if drawn < 2:
            return say.with_tube("use", tube)
        if drawn < 4:
            wide = random.random() < self.options.wide_watch
            return say.with_tube("watch" if wide else "ignore", tube)
        if drawn < 6:
            ids = list(self.ledger.by_id)
            id_ = random.choice(ids[-30:]) if ids else 1
            verb = random.choice(("peek", "reserve-job", "kick-job", "stats-job", "delete", "release", "touch"))
            return say.with_id(verb, id_)
        if drawn == 6:
            return say.kick(random.choice((1, 3, 100)))
        if drawn == 7:
            return say.plain(random.choice(("peek-ready", "peek-delayed", "peek-buried")))
        if drawn == 8:
            return say.with_tube("stats-tube", tube)
        if drawn == 9:
            return say.with_tube("pause-tube", tube, random.choice((0, 0, 1, 2)))
        return say.plain(random.choice(("stats", "list-tubes", "list-tube-used", "list-tubes-watched")))

    # ---------------------------------------------------------------- the end
    def stop(self) -> None:
        """Nobody says anything new."""
        self.running = False

    def unanswered(self) -> list[tuple[SimClient, Command]]:
        return [(client, command) for client in self.clients for command in list(client.outstanding)[:1]]

    def all_leave(self) -> None:
        for client in list(self.clients):
            client.leave(False)

    def answered_within(self) -> int:
        """How long the liveness phase may take: the longest timeout, the wait for a slot, and what is piped behind."""
        return self.options.slot_wait_ns + 30 * NS_PER_S
