"""Measures servers one after the other, in rounds, so that what changes on the machine meanwhile meets all of them."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from beanfield.bench.generator import Watcher, clean
from beanfield.bench.plan import Address, BenchError, Load
from beanfield.bench.processes import run_load
from beanfield.bench.report import Figures, figures_of
from beanfield.bench.servers import RunningServer, version_of


@dataclass
class Target:
    """A server to measure: one to start (command), or one that runs already (address)."""

    name: str
    command: list[str] = field(default_factory=list)
    address: Address | None = None
    keep_jobs: bool = False  # what a load leaves in a server that runs already stays there
    version: str = ""  # once measured


class CostWatcher(Watcher):
    """Passes on to another watcher, and notes what the server used while it was measured."""

    def __init__(self, watcher: Watcher, server: RunningServer | None) -> None:
        self._watcher = watcher
        self._server = server
        self._before_s = 0.0
        self.cpu_s: float | None = None

    def interrupted(self) -> bool:
        return self._watcher.interrupted()

    def ready(self) -> None:
        self._watcher.ready()

    def measuring(self) -> None:
        if self._server is not None:
            self._before_s = self._server.cpu_seconds()
        self._watcher.measuring()

    def progress(self, commands: int) -> None:
        self._watcher.progress(commands)

    def measured(self) -> None:
        if self._server is not None:
            self.cpu_s = self._server.cpu_seconds() - self._before_s
        self._watcher.measured()


@contextlib.contextmanager
def serving(target: Target) -> Iterator[tuple[Address, RunningServer | None]]:
    """The target's address, with its server running if it is one to start. Raises BenchError."""
    if target.address is not None:
        yield target.address, None
        return
    with contextlib.closing(RunningServer(target.name, target.command)) as server:
        server.start()
        yield server.address, server


def measure(target: Target, load: Load, processes: int, watcher: Watcher) -> Figures:
    """One run against one server. Raises BenchError."""
    with serving(target) as (address, server):
        target.version = target.version or version_of(address)
        costs = CostWatcher(watcher, server)
        result = run_load(address, load, processes, costs)
        figures = figures_of(result, load, costs.cpu_s)
        if server is None and not target.keep_jobs:
            try:
                clean(address, load, Watcher())
            except BenchError as error:
                figures["warnings"].append(f"cleaning up failed: {error}")
    return figures
