"""Runs seeds: chaos, then heal and liveness, then an empty server, then a conversation against the dumb model.

    python -m sim --seed 7              one run; --trace prints every line
    python -m sim --seeds 1..500        many; stops at the first that fails
    python -m sim --known               those of seeds.txt

A failure prints the seed, the last lines of the trace and the command that replays it.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from beanfield.build import BUILD
from sim import client as say
from sim.checkers import Inspector, check_nothing_left
from sim.client import Command, SimClient
from sim.faults import SHAPES, FaultMaker, Options
from sim.order import OrderWatch
from sim.planted import PLANTED
from sim.server import Server
from sim.solo import Solo
from sim.workload import Workload
from sim.world import NS_PER_MS, NS_PER_S, Violation, World

Condition = Callable[[], bool]
STEPS_DEFAULT = 4_000
SOLO_STEPS = 120
LINES_SHOWN = 50
SEEDS_FILE = Path(__file__).with_name("seeds.txt")


class Run:
    """One seed from the first event to the last check."""

    def __init__(self, seed: int, steps: int, shape: str = "any", planted: str = "", echo: bool = False) -> None:
        self.steps = steps
        self.world = World(seed, echo)
        self.options = Options(self.world.random("options"), self.world.side_random("options"), shape)
        self.inspector = Inspector()
        self.server = Server(self.world, self.options, self.inspector, planted)
        self.workload = Workload(self.server, self.inspector)
        self.inspector.workload = self.workload
        # With several commands on their way, what a reserve is to watch is not known when it is said.
        if self.options.holds_are_short() and self.options.pipelining == 1:
            self.inspector.order = OrderWatch(self.server)
        self.faults = FaultMaker(self.server)
        self.left_waiting = False  # some client left with a command unanswered

    def run(self) -> str:
        """The trace hash; raises Violation, or whatever a core raised."""
        self.world.trace("options", self.options.describe())
        self.server.supervisor.start()
        self._until(lambda: self.server.all_serve(), 5, "the server does not start")
        # Until the links have said HELLO and WELCOME.
        self.world.run_until(self.world.now_ns + 500 * NS_PER_MS)
        self.workload.start()
        self.faults.start()
        stop_at = self.world.steps + self.steps
        while self.world.steps < stop_at and not self.server.over:
            self.world.step()
        self.heal()
        self.empty()
        self.converse()
        return self.world.trace_hash()

    def _until(self, reached: Condition, seconds: int, complaint: str) -> None:
        end_ns = self.world.now_ns + seconds * NS_PER_S
        while not reached():
            if self.world.now_ns > end_ns or not self.world.step():
                raise Violation(complaint)

    def heal(self) -> None:
        """No more faults, no new commands: everything that can be answered is answered."""
        world = self.world
        world.trace("run", "heals")
        self.faults.stop()
        self.workload.stop()
        if self.server.over:
            raise Violation("the server has ended by itself")
        for client in list(self.workload.clients):
            client.slow_bytes = 0
            client.wake()
        self._until(self.server.all_serve, 60, "the server does not become whole again")
        world.run_until(world.now_ns + self.workload.answered_within())
        self.left_waiting = bool(self.workload.unanswered())
        for client, command in self.workload.unanswered():
            if command.verb != "reserve" or not self._may_wait(command):
                raise Violation(f"{client.name}: {command.line[:60]!r} is never answered")

    def _may_wait(self, command: Command) -> bool:
        free = self.inspector.free
        return not any(tube in each for each in free.values() for tube in command.watched)

    def empty(self) -> None:
        """All clients go; what is left is what the ledger says; it can be drained to nothing."""
        world = self.world
        world.trace("run", "empties")
        self.workload.all_leave()
        world.run_until(world.now_ns + 2 * NS_PER_S)
        check_nothing_left(self.server)
        for slot, process in enumerate(self.server.owners):
            assert process is not None
            jobs = {job.id: job.body for job in process.owner.engine.jobs.jobs()}
            self.workload.ledger.check_against(slot, jobs)
        self._drain()

    def _drain(self) -> None:
        """One client unpauses, kicks, reserves and deletes everything."""
        answers: list[Command] = []
        workload = self.workload

        def heard(client: SimClient, command: Command) -> None:
            workload.ledger.answer(client, command)
            answers.append(command)

        client = SimClient(self.server, "drain", heard, lambda client: None)
        workload.clients.append(client)

        def ask(command: Command) -> Command:
            answers.clear()
            workload.send(client, command)
            self._until(lambda: bool(answers), 60, f"drain: {command.line!r} is not answered")
            return answers[0]

        answered = dict(workload.ledger.answered)
        self._check_totals(answered, ask(say.plain("stats")))
        for tube in workload.tubes:
            for command in (say.with_tube("watch", tube), say.with_tube("use", tube), say.kick(1 << 31)):
                ask(command)
            while ask(say.kick(1 << 31)).reply_args != [b"0"]:
                pass
            ask(say.with_tube("pause-tube", tube, 0))
        while True:
            command = ask(say.reserve(0))
            if command.reply_word == b"TIMED_OUT":
                break
            if command.reply_word == b"RESERVED":
                ask(say.with_id("delete", int(command.reply_args[0])))
        client.leave(False)
        workload.clients.remove(client)
        self.world.run_until(self.world.now_ns + NS_PER_S)
        check_nothing_left(self.server)
        left = sum(process.owner.engine.jobs.count for process in self.server.owners if process is not None)
        if left:
            raise Violation(f"{left} jobs could not be drained")

    def _check_totals(self, answered: dict[str, int], stats: Command) -> None:
        """Every command answered so far is counted once, wherever it was said; if nobody left with one unanswered.

        (What a client has said behind a waiting reserve is executed when it leaves.)
        """
        if not self.options.calm() or self.options.rude or self.left_waiting:
            return
        lines = stats.reply_body.decode().split("\n")
        shown = {key: value for key, _, value in (line.partition(": ") for line in lines)}
        counts: dict[str, int] = {"stats": 1}
        for kind, count in answered.items():
            verb = kind.split(" ")[0]
            counts[verb] = counts.get(verb, 0) + count
        for verb, count in counts.items():
            if verb not in ("bad", "unknown", "reserve-job", "kick-job") and shown[f"cmd-{verb}"] != str(count):
                raise Violation(f"stats: cmd-{verb} is {shown[f'cmd-{verb}']}, {count} were answered")
        if shown["total-jobs"] != str(answered.get("put INSERTED", 0)):
            raise Violation(
                f"stats: total-jobs is {shown['total-jobs']}, {answered.get('put INSERTED', 0)} were inserted"
            )

    def converse(self) -> None:
        self.world.trace("run", "converses")
        solo = Solo(self.server, self.workload.tubes)
        solo.begin()
        solo.run(SOLO_STEPS)
        for client in list(solo.clients):
            client.leave(False)
        self.world.run_until(self.world.now_ns + 500 * NS_PER_MS)
        check_nothing_left(self.server)


def replay(seed: int, steps: int, shape: str, planted: str, echo: bool) -> bool:
    """Run one seed and say how it went. True if all held."""
    run = Run(seed, steps, shape, planted, echo)
    began = time.perf_counter()
    try:
        trace_hash = run.run()
    except Exception as error:
        if not echo:
            for line in list(run.world.last_lines)[-LINES_SHOWN:]:
                print("    " + line)
        if not isinstance(error, Violation):
            traceback.print_exc(file=sys.stdout)
        print(f"FAILED seed={seed} steps={steps} build={BUILD}: {type(error).__name__}: {error}")
        print(f"    {run.options.describe()}")
        words = f"--seed {seed} --steps {steps}" + (f" --shape {shape}" if shape != "any" else "")
        print(f"replay: python -m sim {words}{' --plant ' + planted if planted else ''} --trace")
        return False
    virtual_s = (run.world.now_ns - 1_000 * NS_PER_S) / NS_PER_S
    print(
        f"ok seed={seed} hash={trace_hash} events={run.world.steps} virtual={virtual_s:.0f}s "
        f"shape={run.options.shape()} puts={len(run.workload.ledger.records)} real={time.perf_counter() - began:.1f}s",
        flush=True,
    )
    return True


def known_seeds() -> list[tuple[int, int, str]]:
    """Seeds that failed once: (seed, steps, shape), a comment after each."""
    found = []
    for line in SEEDS_FILE.read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            found.append((int(words[0]), int(words[1]), words[2]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="sim", description="Deterministic simulation of a Beanfield server.")
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", help="run these: A..B")
    parser.add_argument("--known", action="store_true", help="run those of seeds.txt")
    parser.add_argument("--steps", type=int, default=STEPS_DEFAULT, help="events of the phase with faults")
    parser.add_argument("--shape", default="any", choices=SHAPES, help="of the server; any: as the seed draws it")
    parser.add_argument("--trace", action="store_true", help="print every line")
    parser.add_argument("--plant", default="", choices=PLANTED, help="put a bug in that must be found")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    options = parser.parse_args()
    if options.known:
        seeds = known_seeds()
    elif options.seeds:
        first, last = options.seeds.split("..")
        seeds = [(seed, options.steps, options.shape) for seed in range(int(first), int(last) + 1)]
    else:
        seeds = [(1 if options.seed is None else options.seed, options.steps, options.shape)]
    failed = 0
    for seed, steps, shape in seeds:
        if not replay(seed, steps, shape, options.plant, options.trace):
            failed += 1
            if not options.keep_going:
                break
    return 1 if failed else 0
