"""The cores without a kernel: what put, reserve and delete cost in the code of the server alone.

    python -m benchmarks.in_memory                       both shapes, one command at a time per connection
    python -m benchmarks.in_memory --depth 16            16 commands at a time
    python -m benchmarks.in_memory --count               instructions and allocations instead of time, by valgrind

A frontend's core and an owner's core are driven as the loops of their processes do it: `--per-turn` connections have
sent something when a turn begins, and frames go over once per turn. Shape split gives the frames over here and shows
the time of each part; shape combined is the core of `--frontends 0`. Sockets, epoll and copies into the kernel are
what this leaves out. Each figure is the least of several rounds: other work on the machine only adds.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from beanfield.build import BUILD
from beanfield.combined.core import CombinedCore
from beanfield.constants import NS_PER_S
from beanfield.frontend.core import FrontendCore
from beanfield.frontend.state import FrontendConfig
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.pages import PageReader
from beanfield.routing import Topology
from beanfield.wal.journal import MemoryJournal

ROOT: Final = Path(__file__).resolve().parent.parent
SHAPES: Final = ("split", "combined")
STEPS: Final = ("put", "reserve", "delete")
RUN_ID: Final = b"in-memory run id"
BEGIN_NS: Final = 100 * NS_PER_S
LINK: Final = 1 << 40  # the frontend's end; the owner's is 0
JOB_BYTES_MAX: Final = 65_535
COUNTED_ROUNDS: Final = 60
ALLOCATING: Final = ("PyObject_Malloc", "PyMem_Malloc", "PyMem_Calloc")
RESIZING: Final = ("PyMem_Realloc", "PyObject_Realloc")
# What is counted: the shape, and the methods within which it is, by their names in the compiled library.
COUNTED: Final = {
    "frontend": ("split", "CPyPy_frontend___core___FrontendCore___*"),
    "owner": ("split", "CPyPy_owner___core___OwnerCore___*"),
    "combined": ("combined", "CPyPy_*Core___*"),
}


class Cores:
    """A frontend's and an owner's core, and the clients that speak to them. Each turn takes a little time."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.now = BEGIN_NS
        topology = Topology(256, 1)
        self.owner = OwnerCore(OwnerConfig(0, 1, RUN_ID, topology, 0, 0, 1 << 40), MemoryJournal())
        config = FrontendConfig(0, 1, RUN_ID, topology, JOB_BYTES_MAX, 10 * NS_PER_S, 1 << 28)
        self.combined = given.shape == "combined"
        self.frontend: FrontendCore
        if self.combined:
            core = CombinedCore(config, PageReader(), self.owner)
            core.connect(self.now)
            self.frontend = core
        else:
            self.frontend = FrontendCore(config, PageReader())
            self.owner.link_opened(0, self.now)
            self.frontend.link_opened(0, LINK, self.now)
        self.spent = [0, 0, 0]  # ns: commands to frames, frames to replies, replies to clients
        self.turn([])
        for client in range(given.connections):
            self.frontend.client_opened(client, self.now)
            tube = b"tube-%d" % (client % given.tubes)
            setup = b"use %s\r\nwatch %s\r\nignore default\r\n" % (tube, tube)
            self.turn([(client, setup)])
            while self.frontend.next_deadline_ns() == 0:
                self.turn([])

    def turn(self, received: list[tuple[int, bytes]]) -> list[object]:
        """Turns of both loops until nothing is left to hand over; what the clients are sent."""
        self.now += 1_000
        began = time.perf_counter_ns()
        for client, data in received:
            self.frontend.client_received(client, data, self.now)
        outbox = self._frontend_turn()
        self.spent[0] += time.perf_counter_ns() - began
        replies: list[object] = []
        while True:
            frames: list[object] = []
            for handle, piece in zip(outbox[::2], outbox[1::2], strict=True):
                if handle == LINK:
                    frames.append(piece)
                else:
                    replies += (handle, piece)
            if not frames:
                return replies
            began = time.perf_counter_ns()
            answers = self._owner_turn(frames)
            executed = time.perf_counter_ns()
            for piece in answers[1::2]:
                assert isinstance(piece, bytes)
                self.frontend.link_received(LINK, piece, self.now)
            outbox = self._frontend_turn()
            self.spent[1] += executed - began
            self.spent[2] += time.perf_counter_ns() - executed

    def _frontend_turn(self) -> list[object]:
        self.frontend.turn(self.now)
        outbox = self.frontend.take_outbox()
        self.frontend.take_actions()
        return outbox

    def _owner_turn(self, frames: list[object]) -> list[object]:
        for piece in frames:
            assert isinstance(piece, bytes)
            self.owner.link_received(0, piece, self.now)
        self.owner.turn(self.now)
        answers = self.owner.take_outbox()
        self.owner.take_actions()
        return answers

    def step(self, commands: list[bytes], per_turn: int) -> dict[int, bytes]:
        """Each client sends its commands, so many clients in a turn; the replies by client."""
        replies: dict[int, bytes] = {}
        for first in range(0, len(commands), per_turn):
            received = [(client, commands[client]) for client in range(first, min(first + per_turn, len(commands)))]
            out = self.turn(received)
            for client, text in zip(out[::2], out[1::2], strict=True):
                assert isinstance(client, int) and isinstance(text, bytes)
                replies[client] = replies.get(client, b"") + text
        return replies


def run(given: argparse.Namespace) -> dict[str, list[float]]:
    """Nanoseconds per command of each step: of the three parts (combined: all in the first)."""
    cores = Cores(given)
    count = given.connections * given.depth
    body = b"x" * given.body
    put = b"put 100 0 120 %d\r\n%s\r\n" % (len(body), body) * given.depth
    reserve = b"reserve-with-timeout 10\r\n" * given.depth
    best: dict[str, list[float]] = {}
    ids: list[list[bytes]] = []
    for _ in range(given.rounds):
        for name in STEPS:
            if name == "delete":
                commands = [b"".join([b"delete %s\r\n" % job for job in jobs]) for jobs in ids]
            else:
                commands = [put if name == "put" else reserve] * given.connections
            cores.spent = [0, 0, 0]
            replies = cores.step(commands, given.per_turn)
            spent = [part / count for part in cores.spent]
            if name not in best or sum(spent) < sum(best[name]):
                best[name] = spent
            if name == "reserve":
                ids = [re.findall(rb"RESERVED (\d+) ", replies[client]) for client in range(given.connections)]
                assert all(len(jobs) == given.depth for jobs in ids)
    return best


def count(given: argparse.Namespace) -> None:
    """Runs itself under callgrind, which counts the instructions within calls of a core's methods.

    It counts calls in all of the program, though. So the allocations within are the instructions of the functions that
    allocate over those of one call of them, which a run that counts everything tells.
    """
    options = ["--connections", given.connections, "--tubes", given.tubes, "--depth", given.depth]
    options += ["--body", given.body, "--per-turn", given.per_turn, "--rounds", COUNTED_ROUNDS]
    commands = COUNTED_ROUNDS * given.connections * given.depth * len(STEPS)
    words = [sys.executable, "-m", "benchmarks.in_memory", *map(str, options), "--shape"]
    whole = Counts(_callgrind([*words, "combined"], []))
    for name, (shape, pattern) in COUNTED.items():
        inside = Counts(_callgrind([*words, shape], [f"--toggle-collect={pattern}"]))
        allocations, resizes = (
            sum(
                [
                    inside.spent.get(function, 0) * whole.calls[function] / whole.spent[function]
                    for function in functions
                ]
            )
            for functions in (ALLOCATING, RESIZING)
        )
        print(
            f"{name:12s}{sum(inside.spent.values()) / commands:>8,.0f} instructions"
            f"{allocations / commands:>8.1f} allocations{resizes / commands:>8.1f} resizes",
            flush=True,
        )


def _callgrind(words: list[str], options: list[str]) -> str:
    """What it writes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *options]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run([*tool, *words], cwd=ROOT, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return out.read_text()


class Counts:
    """Of each function by name: the instructions it spent itself, and how often it was called."""

    def __init__(self, text: str) -> None:
        self.spent: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        names: dict[str, str] = {}  # spelt out at the first use only
        function = called = ""
        in_call = False  # the next line is what the call cost, its own calls included
        for line in text.splitlines():
            if match := re.match(r"(c?)fn=(\(\d+\))(?: (.*))?$", line):
                name = names.setdefault(match[2], match[3])
                if match[1]:
                    called = name
                else:
                    function = name
            elif line.startswith("calls="):
                self.calls[called] = self.calls.get(called, 0) + int(line[len("calls=") :].split()[0])
                in_call = True
            elif match := re.match(r"[-+*\d]\S* (\d+)$", line):
                if not in_call:
                    self.spent[function] = self.spent.get(function, 0) + int(match[1])
                in_call = False


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.in_memory", description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, help="one of them only")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--tubes", type=int, default=8)
    parser.add_argument("--depth", type=int, default=1, help="commands that a connection sends at once")
    parser.add_argument("--body", type=int, default=100, help="bytes of each job")
    parser.add_argument("--per-turn", type=int, default=16, help="connections that have sent when a turn begins")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--count", action="store_true", help="instructions and allocations per command, by valgrind")
    given = parser.parse_args(arguments)
    if given.count:
        if BUILD != "compiled":
            raise SystemExit("only the compiled build has functions to count in")
        count(given)
        return 0
    print(f"{BUILD} build; {given.connections} connections, {given.depth} at a time, {given.per_turn} in a turn")
    print(f"{'ns per command':20s}{'to frames':>12s}{'execute':>12s}{'to clients':>12s}{'all':>12s}")
    for shape in [given.shape] if given.shape else SHAPES:
        found = run(argparse.Namespace(**vars(given) | {"shape": shape}))
        for step, parts in found.items():
            cells = "".join(f"{part:>12,.0f}" if shape == "split" else f"{'':12s}" for part in parts)
            print(f"{shape:10s}{step:10s}{cells}{sum(parts):>12,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
