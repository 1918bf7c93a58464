"""Random moves of several clients, from a seed: what each sends next, given what all know so far. Knows no sockets.

No move depends on the clock: delays, pauses and ttr are 1,000 seconds and more. What is free is left out: at most one
client at a time waits for a tube (who of several is served first is free), and while somebody waits no move makes more
than one job ready (which of them it gets is free: they overlap in time).
"""

from __future__ import annotations

import random
from typing import NamedTuple

TUBES = (b"default", b"a", b"b", b"c", b"d", b"E-mails/x;y.z$(1)", b"n" * 200)
PRIORITIES = (0, 0, 1, 5, 5, 1023, 1024, 100000, 4294967295)
BROKEN = (
    b"foo\r\n",
    b"\r\n",
    b"put\r\n",
    b"put 0 0 0\r\n",
    b"put 4294967296 0 0 1\r\n",
    b"put 0 0 0 1 \r\n",
    b"peek x\r\n",
    b"delete 18446744073709551616\r\n",
    b"release 1 2\r\n",
    b"bury 1\r\n",
    b"use -x\r\n",
    b"watch " + b"w" * 201 + b"\r\n",
    b"ignore a b\r\n",
    b"x" * 230 + b"\r\n",
    b"stats-job\r\n",
    b"stats \r\n",
    b"pause-tube nosuch 1\r\n",
    b"stats-tube nosuch\r\n",
    b"peek 0\r\n",
    b"kick x\r\n",
    b"list-tubes\x00\r\n",
    b"use \xff\r\n",
    b"put 0 0 0 70000\r\n" + b"z" * 70002,
    b"put 0 0 9000 2\r\nabXY",
)


class Move(NamedTuple):
    """What one client does: commands to send in one write, each answered by one reply; or `reopen`; or a reserve that
    may wait (`may_wait`)."""

    who: int
    commands: tuple[bytes, ...]
    reopen: bool
    may_wait: bool


class Player:
    """What the generator must know of one client."""

    def __init__(self) -> None:
        self.waiting = False
        self.watched = {b"default"}
        self.held: set[int] = set()


class Moves:
    """The moves of one seed. `learn` tells it what came back, so that most commands hit something."""

    def __init__(self, seed: int, clients: int) -> None:
        self._random = random.Random(seed)
        self.players = [Player() for _ in range(clients)]
        self._jobs = 0
        self._deleted: set[int] = set()

    def next(self) -> Move:
        pick = self._random
        who = pick.randrange(len(self.players))
        player = self.players[who]
        calm = any(each.waiting for each in self.players)
        if player.waiting or pick.random() < 0.02:
            if (player.waiting and pick.random() < 0.9) or (calm and len(player.held) > 1):
                return self.next()
            self.players[who] = Player()
            return Move(who, (), True, False)
        if pick.random() < 0.08 and not self._someone_waits_for(player.watched):
            return Move(who, (pick.choice((b"reserve\r\n", b"reserve-with-timeout 1000000\r\n")),), False, True)
        count = 1 if calm else pick.choice((1, 1, 1, 2, 5))
        commands: list[bytes] = []
        for _ in range(count):
            command = self._command(player)
            if calm and command.startswith(b"kick "):
                command = b"kick 1\r\n"
            commands.append(command)
        return Move(who, tuple(commands), False, False)

    def learn(self, who: int, command: bytes, reply: str) -> None:
        player = self.players[who]
        word, _, rest = reply.partition(" ")
        if word == "INSERTED":
            self._jobs += 1
        elif word == "RESERVED":
            player.held.add(int(rest.split()[1]))
        elif word == "DELETED":
            self._deleted.add(int(command.split(b"<")[1].split(b">")[0]))
        if word == "WATCHING":
            name = command.split()[1]
            if command.startswith(b"watch"):
                player.watched.add(name)
            else:
                player.watched.discard(name)

    def _someone_waits_for(self, tubes: set[bytes]) -> bool:
        return any(each.waiting and each.watched & tubes for each in self.players)

    def _command(self, player: Player) -> bytes:
        pick = self._random
        kinds = (
            (self._put, 22),
            (self._on_tube, 22),
            (lambda: b"reserve-with-timeout 0\r\n", 12),
            (lambda: self._on_held(player), 20),
            (self._on_any_job, 14),
            (self._look, 8),
            (self._pause, 3),
            (lambda: pick.choice(BROKEN), 4),
        )
        (make,) = pick.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        return make()

    def _put(self) -> bytes:
        pick = self._random
        size = pick.choice((0, 1, 5, 100, pick.randrange(300), pick.choice((1000, 20000, 65535))))
        body = pick.choice((b"x" * size, pick.randbytes(size)))
        delay = pick.choice((0, 0, 0, 0, pick.randrange(10, 1000) * 100))
        return b"put %d %d %d %d\r\n%s\r\n" % (pick.choice(PRIORITIES), delay, pick.randrange(9000, 99000), size, body)

    def _on_tube(self) -> bytes:
        pick = self._random
        (word,) = pick.choices((b"use", b"watch", b"ignore", b"stats-tube"), (5, 7, 4, 3))
        return word + b" " + pick.choice(TUBES) + b"\r\n"

    def _on_held(self, player: Player) -> bytes:
        pick = self._random
        if not player.held:
            return self._on_any_job()
        job = pick.choice(sorted(player.held))
        kind = pick.randrange(6)
        if kind == 0:
            return b"touch <%d>\r\n" % job
        player.held.discard(job)
        if kind == 1:
            return b"bury <%d> %d\r\n" % (job, pick.choice(PRIORITIES))
        if kind == 2:
            return b"release <%d> %d %d\r\n" % (job, pick.choice(PRIORITIES), pick.randrange(10, 1000) * 100)
        if kind == 3:
            return b"release <%d> %d 0\r\n" % (job, pick.choice(PRIORITIES))
        return b"delete <%d>\r\n" % job

    def _on_any_job(self) -> bytes:
        pick = self._random
        if not self._jobs:
            return b"peek 999999999\r\n"
        alive = [job for job in range(self._jobs) if job not in self._deleted]
        job = pick.choice(alive) if alive and pick.random() < 0.9 else pick.randrange(self._jobs)
        words = (b"peek", b"delete", b"reserve-job", b"kick-job", b"stats-job", b"touch", b"bury", b"release")
        (word,) = pick.choices(words, (3, 4, 4, 3, 6, 1, 1, 1))
        rest = {b"bury": b" 3", b"release": b" 4 0"}.get(word, b"")
        return word + b" <%d>" % job + rest + b"\r\n"

    def _look(self) -> bytes:
        return self._random.choice(
            (
                b"peek-ready\r\n",
                b"peek-delayed\r\n",
                b"peek-buried\r\n",
                b"kick %d\r\n" % self._random.choice((0, 1, 2, 10)),
                b"list-tubes\r\n",
                b"list-tube-used\r\n",
                b"list-tubes-watched\r\n",
                b"stats\r\n",
            )
        )

    def _pause(self) -> bytes:
        return b"pause-tube %s %d\r\n" % (self._random.choice(TUBES), self._random.choice((0, 0, 1000)))
