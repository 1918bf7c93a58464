"""Commands one after the other, over several connections, against the dumb model: every reply is predicted exactly.

Runs when the server is whole and quiet. It is the check of order over owners and frontends: a command sees all that was
answered before it, whichever frontend it goes through (docs/protocol.md).
"""

from random import Random
from typing import TYPE_CHECKING

from sim import client as say
from sim.client import Command, SimClient
from sim.faults import MEMORY_BYTES
from sim.model import DumbServer
from sim.world import NS_PER_MS, NS_PER_S, NS_PER_US, Violation

if TYPE_CHECKING:
    from sim.server import Server

CLIENTS = 3
CLEAR_NS = 40 * NS_PER_MS  # commands keep this far from what happens by itself
ANSWER_NS = 38 * NS_PER_MS
BURST_SHARE = 0.1
VERBS = (
    "put", "put", "put", "put", "put", "reserve", "reserve", "reserve", "reserve", "own", "own", "own", "own", "id",
    "id", "kick", "use", "use", "use", "watch", "watch", "watch", "watch", "ignore", "peek-ready", "peek-delayed",
    "peek-buried", "pause-tube", "stats-tube", "stats", "list-tubes", "list-tube-used", "list-tubes-watched",
    "reconnect",
)  # fmt: skip


class Solo:
    """One sequential conversation."""

    def __init__(self, server: "Server", tubes: list[bytes]) -> None:
        self.server = server
        self.world = server.world
        self.random: Random = server.world.random("solo")
        self.tubes = tubes
        self.model = DumbServer()
        self.clients: list[SimClient] = []
        self.names = 0
        self.bodies = 0
        self.answered: Command | None = None
        self.sequences: dict[int, int] = {}  # by slot
        options = server.options
        options.memory_bytes = MEMORY_BYTES
        for process in server.owners:
            assert process is not None
            process.owner.memory_bytes_max = MEMORY_BYTES
        for store in server.storage.slots:
            store.disk.latency_ns_min, store.disk.latency_ns_max = 20 * NS_PER_US, 500 * NS_PER_US
        options.turn_jitter_ns = 20 * NS_PER_US
        # Links slower than clients: a command by another way overtakes what the one before it has left behind.
        options.client_nature.delay_ns = options.client_nature.jitter_ns = 50 * NS_PER_US
        options.link_nature.delay_ns = 50 * NS_PER_US
        options.link_nature.jitter_ns = self.random.choice((100, 1_000, 6_000)) * NS_PER_US

    def run(self, steps: int) -> None:
        while len(self.clients) < CLIENTS:
            self._connect()
        for _ in range(steps):
            self._step()

    def begin(self) -> None:
        """Tube `default` outlives all: the model starts with what it has counted."""
        self._connect()
        client = self.clients[0]
        command = self._say(client, say.with_tube("stats-tube", b"default"), NS_PER_S)
        lines = dict(line.split(b": ") for line in command.reply_body.split(b"\n") if b": " in line)
        default = self.model.tubes[b"default"]
        default.total_jobs = int(lines[b"total-jobs"])
        default.deletes = int(lines[b"cmd-delete"])
        default.pauses = int(lines[b"cmd-pause-tube"])

    def _connect(self) -> None:
        self.names += 1
        client = SimClient(self.server, f"s{self.names}", self._heard, self._ended)
        self.clients.append(client)
        self.model.connect(client.name)
        # Its references to `default` travel ahead of its first command only on its own link.
        self._ask(client, say.plain("list-tube-used"))

    def _heard(self, client: SimClient, command: Command) -> None:
        self.answered = command

    def _ended(self, client: SimClient) -> None:
        self.clients.remove(client)

    # ---------------------------------------------------------------- one step
    def _step(self) -> None:
        self.world.run_until(self.world.now_ns + self.random.choice((0, 0, 0, 0, 1, 5, 60, 300, 1_100)) * NS_PER_MS)
        self._keep_clear(0)
        client = self.random.choice(self.clients)
        if self.random.random() < BURST_SHARE:
            self._burst()
            return
        verb = self.random.choice(VERBS)
        if verb == "reconnect":
            self._reconnect(client)
        elif verb == "reserve":
            self._reserve(client, self.random.choice((0, 0, 0, 1, 2)))
        else:
            self._ask(client, self._command(client, verb))

    def _burst(self) -> None:
        """All clients watch everything and take, in turn and without pause, jobs put into all tubes."""
        random = self.random
        for client in self.clients:
            for tube in self.tubes:
                self._ask(client, say.with_tube("watch", tube))
        for _ in range(random.randrange(2, 8)):
            client = random.choice(self.clients)
            self._ask(client, say.with_tube("use", random.choice(self.tubes)))
            self.bodies += 1
            self._keep_clear(0)
            self._ask(client, say.put(b"solo %d" % self.bodies, random.choice((0, 1, 1)), 0, 60))
        for _ in range(random.randrange(3, 9)):
            self._keep_clear(0)
            client = random.choice(self.clients)
            self._reserve(client, 0)
            own = [job.id for job in self.model.jobs if job.holder == client.name]
            if own and random.random() < 0.7:
                verb = random.choice(("delete", "delete", "release"))
                self._keep_clear(0)
                self._ask(client, say.with_id(verb, random.choice(own), random.choice((0, 1, 1))))

    def _keep_clear(self, after_ns: int) -> None:
        """Let time pass until nothing happens by itself around now (and now + after_ns)."""
        while True:
            near = [
                at_ns
                for at_ns in self.model.instants()
                if any(abs(at_ns - self.world.now_ns - offset) <= CLEAR_NS for offset in (0, after_ns))
            ]
            if not near:
                return
            self.world.run_until(self.world.now_ns + CLEAR_NS)

    def _command(self, client: SimClient, verb: str) -> Command:
        random = self.random
        tube = random.choice(self.tubes)
        if verb == "put":
            self.bodies += 1
            body = b"solo %d" % self.bodies
            delay_s, ttr_s = random.choice((0, 0, 0, 1, 3)), random.choice((0, 1, 2, 5, 60))
            return say.put(body, random.choice((0, 1, 1, 1, 2_000)), delay_s, ttr_s)
        if verb == "own":
            own = [job.id for job in self.model.jobs if job.holder == client.name]
            id_ = random.choice(own or [job.id for job in self.model.jobs] or [1])
            verb = random.choice(("delete", "delete", "release", "bury", "touch", "kick-job"))
            return say.with_id(verb, id_, random.choice((0, 1, 1)), random.choice((0, 0, 1)))
        if verb == "id":
            ids = [job.id for job in self.model.jobs] or [1]
            verb = random.choice(("peek", "stats-job", "reserve-job", "kick-job", "delete", "touch"))
            return say.with_id(verb, random.choice(ids) + random.choice((0, 0, 0, 1)))
        if verb in ("use", "watch", "ignore", "stats-tube", "pause-tube"):
            return say.with_tube(verb, tube, random.choice((0, 1, 2)))
        if verb == "kick":
            return say.kick(random.choice((1, 2, 100)))
        return say.plain(verb)

    def _reconnect(self, client: SimClient) -> None:
        own = [job.id for job in self.model.jobs if job.holder == client.name]
        client.leave(False)
        self.model.advance(self.world.now_ns)
        self.model.disconnect(client.name)
        if self.random.random() < 0.5:
            # Just long enough for the end to reach its frontend. These must see it all the same (docs/protocol.md).
            self.world.run_until(self.world.now_ns + NS_PER_MS)
            other = self.random.choice(self.clients)
            if own and self.random.random() < 0.7:
                self._ask(other, say.with_id("delete", self.random.choice(own)))
            else:
                self._ask(other, say.plain("list-tubes"))
        # Everything else sees it when it has reached the owners.
        self.world.run_until(self.world.now_ns + 25 * NS_PER_MS)
        self._keep_clear(0)
        self._connect()

    # ---------------------------------------------------------------- saying and comparing
    def _say(self, client: SimClient, command: Command, within_ns: int) -> Command:
        self.answered = None
        command.none_seen = True
        client.send(command)
        until_ns = self.world.now_ns + within_ns
        while self.answered is None and self.world.now_ns < until_ns and self.world.step():
            pass
        if self.answered is None:
            raise Violation(f"{client.name}: {command.line!r} is not answered in time")
        return self.answered

    def _ask(self, client: SimClient, command: Command) -> None:
        if command.delay_s:
            self._keep_clear(command.delay_s * NS_PER_S)
        if command.verb == "put":
            self.model.advance(self.world.now_ns)
            self._say(client, command, 10 * ANSWER_NS)
            if command.reply_word != b"INSERTED":
                raise Violation(f"{client.name}: put is answered {command.reply_word!r}")
            self._check_id(client, int(command.reply_args[0]))
            self.model.put_done(client.name, command, int(command.reply_args[0]))
            return
        expected = self.model.execute(client.name, command, self.world.now_ns)
        self._say(client, command, 10 * ANSWER_NS)
        self._compare(client, command, expected)

    def _check_id(self, client: SimClient, id_: int) -> None:
        topology = self.server.topology
        slot = topology.slot_of_id(id_)
        sequence = topology.sequence_of_id(id_)
        if topology.partition_of_id(id_) != topology.partition_of(self.model.connections[client.name].used):
            raise Violation(f"{client.name}: id {id_} is of another partition than its tube")
        if slot in self.sequences and sequence != self.sequences[slot] + 1:
            raise Violation(f"{client.name}: sequence {sequence} of slot {slot} after {self.sequences[slot]}")
        self.sequences[slot] = sequence

    def _reserve(self, client: SimClient, timeout_s: int) -> None:
        if timeout_s:
            self._keep_clear(timeout_s * NS_PER_S)
        began_ns = self.world.now_ns
        expected, due_ns = self.model.reserve(client.name, timeout_s * NS_PER_S, began_ns)
        command = self._say(client, say.reserve(timeout_s), due_ns - began_ns + 10 * ANSWER_NS)
        self._compare(client, command, expected)
        early_ns = due_ns - command.answered_ns
        if early_ns > 0 or -early_ns > ANSWER_NS:
            raise Violation(f"{client.name}: the answer to reserve came {-early_ns / NS_PER_MS:.1f} ms late")
        # The reservation began when the owner granted it: close enough, commands keep clear of its end.

    def _compare(self, client: SimClient, command: Command, expected: tuple[list[bytes], bytes]) -> None:
        words, body = expected
        said = [command.reply_word, *command.reply_args]
        if command.verb.startswith("stats") and words[0] == b"OK" == command.reply_word:
            lines = command.reply_body.split(b"\n")
            missing = [line for line in body.split(b"\n") if line not in lines]
            if missing:
                shown = command.reply_body
                raise Violation(f"{client.name}: {command.line!r} should show {missing!r}, shows {shown!r}")
            return
        if words != said or body != command.reply_body:
            raise Violation(
                f"{client.name}: {command.line!r} is answered {said!r} {command.reply_body[:60]!r}, "
                f"not {words!r} {body[:60]!r}"
            )
