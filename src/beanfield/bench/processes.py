"""Runs a load in several processes when one does not send enough: forked, connected, begun together, results added.

Each process reports to the parent in lines of JSON over a pipe, and waits for one byte on another before it begins.
With one process there is none of this. Interrupts are the parent's to hear (the children stand in process groups of
their own) and are passed on once; then each child ends with what it has. A child whose parent is gone ends at its next
report.
"""

import contextlib
import json
import os
import selectors
import signal
import sys
from typing import Any, Final

from beanfield.bench.generator import Result, Watcher, generate
from beanfield.bench.plan import Address, BenchError, Load

REPORT_BYTES: Final = 65_536


class _Reporting(Watcher):
    """In a child: says to the parent what it hears."""

    def __init__(self, watcher: Watcher, reports: int, gate: int) -> None:
        self._watcher = watcher
        self._reports = reports
        self._gate = gate

    def say(self, **words: Any) -> None:
        data = json.dumps(words).encode() + b"\n"
        while data:
            data = data[os.write(self._reports, data) :]

    def interrupted(self) -> bool:
        return self._watcher.interrupted()

    def ready(self) -> None:
        self.say(ready=True)
        if not os.read(self._gate, 1):
            raise BenchError("the load was called off")

    def measuring(self) -> None:
        self.say(measuring=True)

    def progress(self, commands: int) -> None:
        self.say(commands=commands)


class _Child:
    """The parent's view of one process."""

    def __init__(self, address: Address, load: Load, watcher: Watcher, others: list["_Child"]) -> None:
        self.reports, reports = os.pipe()
        gate, self.gate = os.pipe()
        self.buffer = b""
        self.commands = 0
        self.is_ready = False
        self.result: Result | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                # Whoever holds another one's gate keeps it from seeing that the parent is gone.
                for descriptor in [self.reports, self.gate, *(d for o in others for d in (o.reports, o.gate))]:
                    os.close(descriptor)
                _be_child(address, load, _Reporting(watcher, reports, gate))
                code = 0
            finally:
                os._exit(code)
        os.close(reports)
        os.close(gate)

    def interrupt(self) -> None:
        """It has not been waited for, so its process id is still its own."""
        os.kill(self.pid, signal.SIGINT)

    def end(self) -> None:
        """Wait for it; one that still waits to begin ends by itself, as its gate closes."""
        for descriptor in (self.reports, self.gate):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        os.waitpid(self.pid, 0)


def _be_child(address: Address, load: Load, reporting: _Reporting) -> None:
    with contextlib.suppress(BrokenPipeError):
        try:
            reporting.say(result=generate(address, load, reporting).to_plain())
        except BenchError as error:
            reporting.say(failure=str(error))


def run_load(address: Address, load: Load, processes: int, watcher: Watcher) -> Result:
    """One run of the whole load. Raises BenchError."""
    shares = load.shares(processes)
    if processes == 1:
        return generate(address, shares[0], watcher)
    children: list[_Child] = []
    try:
        for share in shares:
            children.append(_Child(address, share, watcher, children))
        _listen(children, watcher)
    finally:
        for child in children:
            child.end()
    total = Result()
    for child in children:
        assert child.result is not None
        total.add(child.result)
    return total


def _listen(children: list[_Child], watcher: Watcher) -> None:
    """Until all have given their results. Raises BenchError at the first that fails."""
    measuring = False
    passed_on = False
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.reports, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select():
                child = key.data
                data = os.read(child.reports, REPORT_BYTES)
                if not data:
                    selector.unregister(child.reports)
                    if child.result is None:
                        raise BenchError("a process of the load generator ended without a result")
                    continue
                *lines, child.buffer = (child.buffer + data).split(b"\n")
                for line in lines:
                    words = json.loads(line)
                    if "measuring" in words and not measuring:
                        measuring = True
                        watcher.measuring()
                    _take(child, words, children, watcher)
            watcher.progress(sum(child.commands for child in children))
            if watcher.interrupted() and not passed_on:
                passed_on = True
                for child in children:
                    child.interrupt()
    watcher.measured()


def _take(child: _Child, words: dict[str, Any], children: list[_Child], watcher: Watcher) -> None:
    if "failure" in words:
        raise BenchError(words["failure"])
    if "result" in words:
        child.result = Result.from_plain(words["result"])
        child.commands = child.result.commands
    elif "ready" in words:
        child.is_ready = True
        if all(one.is_ready for one in children):
            watcher.ready()
            for one in children:
                os.write(one.gate, b"b")
    elif "commands" in words:
        child.commands = words["commands"]
