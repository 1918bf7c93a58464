"""Everything at once over random peers, and ten thousand idle ones."""

import os
import random
import resource
import socket
import subprocess
import sys
import time
from typing import Any

import pytest

from beanfield.constants import NS_PER_MS
from beanfield.io.reactor import CLIENT
from tests.unit.reactor.bench import PATIENCE_NS, Bench, reset

# ---------------------------------------------------------------- all of it at once


class Walk:
    """Random peers and a random core over a few connections, with what must hold for every one of them."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.peers: dict[int, socket.socket] = {}  # open handles; a peer of -1 is closed
        self.sent: dict[int, bytearray] = {}
        self.got: dict[int, bytearray] = {}
        self.replied: dict[int, bytearray] = {}
        self.peer_open: dict[int, bool] = {}
        self.words: dict[int, list[str]] = {}
        bench.core.reaction = self.check_call

    def check_call(self, call: str, handle: int) -> None:
        assert handle in self.peers, "a call for a handle that was closed"
        words = self.words[handle]
        if call in ("ended", "failed"):
            assert call not in words
            assert call == "ended" or "ended" in words
            words.append(call)
            assert not self.peer_open[handle]
        elif call == "received":
            assert bytes(self.bench.core.bytes_of[handle]) == self.sent[handle][: len(self.bench.core.bytes_of[handle])]
        if self.random.random() < 0.05:
            self.close(handle)

    def open(self) -> None:
        handle, peer = self.bench.pair(CLIENT, self.random.choice(("unix", "tcp")), self.random.choice((0, 4_096)))
        assert handle not in self.peers
        peer.setblocking(False)
        self.peers[handle] = peer
        self.sent[handle] = bytearray()
        self.replied[handle] = bytearray()
        self.got[handle] = bytearray()
        self.peer_open[handle] = True
        self.words[handle] = []
        self.bench.core.bytes_of[handle] = bytearray()

    def close(self, handle: int) -> None:
        self.bench.reactor.close(handle)
        self.peers.pop(handle)

    def step(self) -> None:
        if len(self.peers) < 3 or self.random.random() < 0.05:
            self.open()
        handle = self.random.choice(sorted(self.peers))
        peer = self.peers[handle]
        action = self.random.choice("send send send reply reply reply read read pause resume resume end close".split())
        if action == "send" and self.peer_open[handle]:
            data = self.random.randbytes(self.random.choice((1, 100, 5_000, 100_000)))
            try:
                self.sent[handle] += data[: peer.send(data)]
            except BlockingIOError:
                pass
        elif action == "reply":
            pieces = [self.random.randbytes(self.random.choice((0, 10, 3_000, 90_000))) for _ in range(3)]
            other = self.random.choice(sorted(self.peers))
            outbox: list[Any] = []
            for piece in pieces:
                outbox += [handle, piece, other, piece]
                self.replied[handle] += piece
                self.replied[other] += piece
            self.bench.reactor.flush(outbox)
        elif action == "read" and peer.fileno() >= 0:
            self.read(handle)
        elif action == "pause":
            self.bench.reactor.pause(handle)
        elif action == "resume":
            self.bench.reactor.resume(handle)
        elif action == "end" and self.peer_open[handle] and self.random.random() < 0.3:
            self.peer_open[handle] = False
            self.random.choice((lambda: peer.shutdown(socket.SHUT_WR), peer.close, lambda: reset(peer)))()
        elif action == "close" and self.random.random() < 0.3:
            self.close(handle)
        if self.random.random() < 0.7:
            self.bench.poll(self.random.choice((0, 0, NS_PER_MS)))

    def read(self, handle: int) -> None:
        try:
            self.got[handle] += self.peers[handle].recv(100_000)
        except (BlockingIOError, ConnectionResetError):
            pass
        assert bytes(self.got[handle]) == self.replied[handle][: len(self.got[handle])]

    def finish(self) -> None:
        """All is read in the end: whoever is still there has every byte, in both directions."""
        for handle in sorted(self.peers):
            self.bench.reactor.resume(handle)
        self.random = random.Random(0)
        self.bench.core.reaction = None
        give_up_ns = time.monotonic_ns() + PATIENCE_NS
        for handle, peer in sorted(self.peers.items()):
            whole = peer.fileno() >= 0
            while whole and (
                len(self.got[handle]) < len(self.replied[handle])
                or len(self.bench.core.bytes_of[handle]) < len(self.sent[handle])
            ):
                assert time.monotonic_ns() < give_up_ns
                self.read(handle)
                self.bench.poll(0)
            if whole:
                assert self.bench.core.bytes_of[handle] == self.sent[handle]
        for handle in sorted(self.peers):
            self.bench.reactor.close(handle)


@pytest.mark.parametrize("seed", range(12))
def test_a_random_walk_keeps_every_stream_whole(bench: Bench, seed: int) -> None:
    walk = Walk(bench, seed)
    for _ in range(400):
        walk.step()
    walk.finish()


# ---------------------------------------------------------------- many

CONNECT_MANY = """
import resource, socket, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
peers = []
for _ in range(int(sys.argv[2])):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(b"\\0" + sys.argv[1].encode())
    peers.append(peer)
print("connected", flush=True)
sys.stdin.readline()
for peer in peers[::100]:
    peer.sendall(b"hello")
sys.stdin.readline()
"""


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_ten_thousand_idle_connections_cost_little_memory_and_no_time(bench: Bench) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = min(10_000, hard - 500)
    name = f"beanfield-test-{os.getpid()}-{bench.name}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0" + name.encode())
        listener.listen(1_024)
        child = subprocess.Popen(
            [sys.executable, "-c", CONNECT_MANY, name, str(wanted)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdin is not None and child.stdout is not None
        try:
            accepted = []
            for _ in range(wanted):
                connection, _ = listener.accept()
                accepted.append(connection.detach())
            assert child.stdout.readline() == b"connected\n"
            before = resident_bytes()
            handles = [bench.reactor.add(fd, CLIENT) for fd in accepted]
            per_handle = (resident_bytes() - before) / wanted
            assert handles == list(range(wanted))
            # Half of it is the list of handles just made; an entry has 48 bytes natively, and is two objects otherwise.
            assert per_handle < (250 if bench.name == "native" else 2_000)
            bench.assert_quiet()
            child.stdin.write(b"\n")
            child.stdin.flush()
            bench.until(lambda: len(bench.core.calls) == len(range(0, wanted, 100)))
            bench.assert_quiet()
            child.communicate(b"\n", timeout=60)  # all leave at once
            bench.until(lambda: sum(call[0] == "ended" for call in bench.core.calls) == wanted)
            for handle in handles:
                bench.reactor.close(handle)
            assert bench.reactor.in_use() == 0
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
            bench.reactor.shut_down()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
