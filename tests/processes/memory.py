"""What a server's processes cost, as the kernel counts it: memory of their own, and CPU time."""

import os
import resource
import time
from pathlib import Path

from tests.processes.server import Server

MIB = 1 << 20


def private_bytes(pid: int) -> int:
    """Memory that would be free if this process ended (USS): nothing shared, nothing of the kernel's."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            total += int(line.split()[1]) * 1024
    return total


def own_bytes() -> int:
    return private_bytes(os.getpid())


def server_bytes(server: Server) -> int:
    """Of all children together; the supervisor has nothing to do with jobs or clients."""
    return sum(private_bytes(child.pid) for child in server.children())


def cpu_seconds(server: Server) -> float:
    """What all processes of the server have used so far."""
    total = 0
    for pid in (server.pid, *(child.pid for child in server.children())):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / 100


def assert_comes_to_rest(server: Server, seconds: float = 20.0) -> None:
    """Within this time there is a while of 0.4 s in which the server uses next to no CPU time."""
    limit = time.monotonic() + seconds
    while True:
        before = cpu_seconds(server)
        time.sleep(0.4)
        used = cpu_seconds(server) - before
        if used < 0.15:
            return
        assert time.monotonic() < limit, f"{used} s of CPU time in 0.4 s of doing nothing"


def room_for_connections(wanted: int) -> int:
    """How many connections this process and a frontend may have, up to what is wanted; raises its own soft limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wanted, hard - 500)
