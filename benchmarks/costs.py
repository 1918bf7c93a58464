"""What a server costs beside its CPU time under load: memory per job and connection, and coming back after a kill."""

import contextlib
import signal
import time
from dataclasses import replace
from typing import Final

from beanfield.bench.generator import Watcher, allow_connections, generate
from beanfield.bench.plan import SHAPES, BenchError, Load
from beanfield.bench.servers import RunningServer
from benchmarks.rows import IDLE, MEMORY, Cost

IDLE_CONNECTIONS: Final = 1_000
CONNECT_S: Final = 10.0


def cost_of(cost: Cost, name: str, command: list[str], jobs: int) -> float:
    """One figure for one server. Raises BenchError."""
    with contextlib.closing(RunningServer(name, command)) as server:
        server.start()
        if cost is IDLE:
            return _idle_memory(server)
        empty = server.memory_bytes()
        _fill(server, jobs)
        if cost is MEMORY:
            return (server.memory_bytes() - empty) / jobs
        server.end(signal.SIGKILL)
        began = time.monotonic()
        server.start()
        return time.monotonic() - began


def _fill(server: RunningServer, jobs: int) -> None:
    shape = replace(SHAPES["put"], connections=8, depth=100)
    load = Load("put", shape, jobs=jobs, warm_up_s=0.0).shares(1)[0]
    result = generate(server.address, load, Watcher())
    if result.unexpected or result.lost or result.commands != jobs:
        raise BenchError(f"{server.name} took {result.commands} of {jobs} jobs: {result.unexpected}")


def _idle_memory(server: RunningServer) -> float:
    allow_connections(IDLE_CONNECTIONS)
    before = server.memory_bytes()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.address.connect(CONNECT_S)) for _ in range(IDLE_CONNECTIONS)]
        # A reply shows that the server has taken the connection.
        for connection in connections:
            connection.sendall(b"list-tube-used\r\n")
        for connection in connections:
            if not connection.recv(64).startswith(b"USING"):
                raise BenchError(f"{server.name} does not answer on {IDLE_CONNECTIONS} connections")
        return (server.memory_bytes() - before) / IDLE_CONNECTIONS
