"""Random conversations held with beanstalkd and with Beanfield at the same time: every reply must be the same.

Runs where `beanstalkd` is installed. BEANFIELD_ORACLE_SEEDS=100..140 plays other seeds.
"""

from __future__ import annotations

import difflib
import os
import time

import pytest

from tests.oracle.conversation import REPLY_SECONDS, Conversation
from tests.oracle.moves import Move, Moves
from tests.transcripts.servers import ORACLE, OURS, SHAPES, Shape, start

CLIENTS = 5
MOVES = 400
FIRST_SEED, LAST_SEED = (int(each) for each in os.environ.get("BEANFIELD_ORACLE_SEEDS", "1..3").split(".."))
LAST_LINES = 30


class Comparison:
    """One seed played on two servers."""

    def __init__(self, seed: int, oracle: Conversation, ours: Conversation) -> None:
        self._moves = Moves(seed, CLIENTS)
        self._oracle = oracle
        self._ours = ours
        self._log: list[str] = []
        self._waits: dict[int, bytes] = {}

    def play(self, moves: int) -> None:
        for _ in range(moves):
            move = self._moves.next()
            if move.reopen:
                self._reopen(move.who)
            else:
                self._send(move)
            self._take_replies_of_waiting_clients()
        self._compare_at_the_end()

    def _reopen(self, who: int) -> None:
        self._log.append(f"client {who} closes and connects again")
        self._waits.pop(who, None)
        self._oracle.reopen(who)
        self._ours.reopen(who)

    def _send(self, move: Move) -> None:
        commands = list(move.commands)
        self._oracle.send(move.who, commands)
        self._ours.send(move.who, commands)
        if move.may_wait:
            self._waits[move.who] = commands[0]
            self._moves.players[move.who].waiting = True
            self._log.append(f"client {move.who} > {commands[0]!r}")
            return
        for command in commands:
            self._compare_reply(move.who, command)

    def _compare_reply(self, who: int, command: bytes) -> None:
        self._log.append(f"client {who} > {command[:120]!r}")
        expected = self._oracle.reply(who, command)
        given = self._ours.reply(who, command)
        if given != expected:
            different = "\n".join(difflib.ndiff(expected.split("\n"), given.split("\n")))
            raise AssertionError(self._report(f"beanstalkd (-) and Beanfield (+):\n{different[:1500]}"))
        self._log.append("        < " + expected[:500].replace("\n", ", "))
        self._moves.learn(who, command, expected)

    def _take_replies_of_waiting_clients(self) -> None:
        """The servers' own counts say how many still wait; whoever the oracle answered must be answered by us."""
        limit = time.monotonic() + REPLY_SECONDS
        while len(self._waits) > self._oracle.observe("current-waiting"):
            assert time.monotonic() < limit, self._report("beanstalkd counts less who wait than it answered")
            for who in [who for who in self._waits if self._oracle.clients[who].has_input(0.01)]:
                assert self._ours.clients[who].has_input(REPLY_SECONDS), self._report(f"client {who} got no answer")
                self._compare_reply(who, self._waits.pop(who))
                self._moves.players[who].waiting = False
        while len(self._waits) != self._ours.observe("current-waiting"):
            assert time.monotonic() < limit, self._report(f"Beanfield does not count {len(self._waits)} who wait")
        for who in self._waits:
            assert not self._ours.clients[who].has_input(), self._report(f"client {who} was answered too early")

    def _compare_at_the_end(self) -> None:
        for who, player in enumerate(self._moves.players):
            if not player.waiting:
                self._send(Move(who, (b"stats\r\n", b"list-tubes\r\n"), False, False))
                return

    def _report(self, what: str) -> str:
        return "\n".join((*self._log[-LAST_LINES:], what))


def play_on(shape: Shape, seed: int) -> None:
    oracle_server, our_server = start(ORACLE), start(shape)
    try:
        oracle, ours = Conversation(oracle_server.address, CLIENTS), Conversation(our_server.address, CLIENTS)
        try:
            Comparison(seed, oracle, ours).play(MOVES)
        finally:
            oracle.close()
            ours.close()
    finally:
        oracle_server.stop()
        our_server.stop()


if ORACLE in SHAPES:

    @pytest.mark.parametrize("seed", range(FIRST_SEED, LAST_SEED + 1))
    @pytest.mark.parametrize("shape", OURS, ids=lambda shape: shape.name)
    def test_a_random_conversation_is_answered_as_by_beanstalkd(shape: Shape, seed: int) -> None:
        play_on(shape, seed)
