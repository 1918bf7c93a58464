"""What the tests of the reactors share: a core that writes down what it is told, and a reactor with its peers.

The suite is one for every reactor: the native one, its pure twin, and the one on `selectors`. A test that takes `bench`
runs on all that this build has, with a core that takes bytes one client at a time and with one that takes them in
batches; one that takes `epoll_bench` only on those that notice the end of a peer without reading, which `selectors`
cannot.
"""

import importlib
import os
import random
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from beanfield.constants import CLIENT_RECEIVE_BYTES, LINK_RECEIVE_BYTES, NS_PER_MS, NS_PER_S
from beanfield.io.reactor import CLIENT

QUIET_ATTEMPTS = 30
IMPLEMENTATIONS = {
    "native": "beanfield.io._reactor",
    "pure": "beanfield.io.reactor",
    "selectors": "beanfield.io.selectors_reactor",
}
PATIENCE_NS = 10 * NS_PER_S  # how long a loaded machine may take for what should come at once


def available() -> list[str]:
    found = []
    for name, module in IMPLEMENTATIONS.items():
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        found.append(name)
    return found


class RecordingCore:
    """Writes down every call; a test may hang a reaction on it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.bytes_of: dict[int, bytearray] = {}
        self.last_now_ns = 0
        self.reaction: Callable[[str, int], None] | None = None

    def _record(self, call: str, handle: int, now_ns: int, *extra: Any) -> None:
        assert type(handle) is int and type(now_ns) is int
        assert self.last_now_ns <= now_ns <= time.monotonic_ns()
        self.last_now_ns = now_ns
        self.calls.append((call, handle, *extra))
        if self.reaction is not None:
            self.reaction(call, handle)

    def client_received(self, handle: int, data: bytes, now_ns: int) -> None:
        assert type(data) is bytes and 0 < len(data) <= CLIENT_RECEIVE_BYTES
        self.bytes_of.setdefault(handle, bytearray()).extend(data)
        self._record("received", handle, now_ns, data)

    def client_ended(self, handle: int, now_ns: int) -> None:
        self._record("ended", handle, now_ns)

    def client_failed(self, handle: int, now_ns: int) -> None:
        self._record("failed", handle, now_ns)

    def client_unsent(self, handle: int, unsent_bytes: int, now_ns: int) -> None:
        assert unsent_bytes >= 0
        self._record("unsent", handle, now_ns, unsent_bytes)

    def link_received(self, handle: int, data: bytes, now_ns: int) -> None:
        assert type(data) is bytes and 0 < len(data) <= LINK_RECEIVE_BYTES
        self.bytes_of.setdefault(handle, bytearray()).extend(data)
        self._record("link_received", handle, now_ns, data)

    def link_ended(self, handle: int, now_ns: int) -> None:
        self._record("link_ended", handle, now_ns)

    def link_unsent(self, handle: int, unsent_bytes: int, now_ns: int) -> None:
        assert unsent_bytes >= 0
        self._record("link_unsent", handle, now_ns, unsent_bytes)


class BatchCore(RecordingCore):
    """Takes what clients have sent in batches, and writes it down as if it had come one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[int]] = []

    def clients_received(self, handles: list[int], pieces: list[bytes], now_ns: int) -> None:
        assert len(handles) == len(pieces) > 0
        self.batches.append(handles)
        for handle, data in zip(handles, pieces, strict=True):
            self.client_received(handle, data, now_ns)


class Bench:
    """A reactor, a core that records, and the other ends of its sockets."""

    def __init__(self, name: str, core: RecordingCore) -> None:
        self.name = name
        self.new_reactor = importlib.import_module(IMPLEMENTATIONS[name]).Reactor
        self.reactor = self.new_reactor()
        self.core = core
        self.peers: list[socket.socket] = []

    def pair(self, kind: int = CLIENT, family: str = "unix", send_buffer: int = 0) -> tuple[int, socket.socket]:
        if family == "unix":
            own, peer = socket.socketpair()
        else:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                peer = socket.create_connection(listener.getsockname())
                own, _ = listener.accept()
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        peer.settimeout(PATIENCE_NS / NS_PER_S)
        self.peers.append(peer)
        return self.reactor.add(own.detach(), kind), peer

    def poll(self, timeout_ns: int = 0) -> list[int]:
        ready = self.reactor.poll(self.core, timeout_ns)
        assert isinstance(ready, list)
        return ready

    def until(self, condition: Callable[[], bool]) -> None:
        give_up_ns = time.monotonic_ns() + PATIENCE_NS
        while not condition():
            assert time.monotonic_ns() < give_up_ns, self.core.calls[-20:]
            self.poll(5 * NS_PER_MS)

    def until_call(self, *call: Any) -> None:
        self.until(lambda: call in self.core.calls)

    def read_while_polling(self, peer: socket.socket, size: int) -> bytes:
        """What the peer gets, while the reactor goes on sending it."""
        received = bytearray()
        give_up_ns = time.monotonic_ns() + PATIENCE_NS
        while len(received) < size:
            assert time.monotonic_ns() < give_up_ns, f"{len(received)} of {size} bytes"
            readable, _, _ = select.select([peer], [], [], 0)
            if readable:
                piece = peer.recv(1 << 20)
                assert piece
                received += piece
            self.poll(0 if readable else NS_PER_MS)
        return bytes(received)

    def names(self, handle: int) -> list[str]:
        return [call[0] for call in self.core.calls if call[1] == handle]

    def ends(self, handle: int) -> list[str]:
        return [name for name in self.names(handle) if name in ("ended", "failed", "link_ended")]

    def assert_quiet(self) -> None:
        """Nothing makes poll() return before its time: there is no busy loop.

        Work left over comes first, and so does what a kernel still moves into a peer's growing window: it comes to an
        end, a busy loop does not.
        """
        for _ in range(QUIET_ATTEMPTS):
            calls = list(self.core.calls)
            before_ns = time.monotonic_ns()
            handles = self.poll(15 * NS_PER_MS)
            if handles == [] and self.core.calls == calls and time.monotonic_ns() - before_ns >= 15 * NS_PER_MS:
                return
        raise AssertionError(f"never quiet; the last calls: {self.core.calls[-5:]}")

    def close(self) -> None:
        self.reactor.shut_down()
        for peer in self.peers:
            peer.close()


def run_bench(name: str, core: RecordingCore) -> Iterator[Bench]:
    before = len(os.listdir("/proc/self/fd"))
    made = Bench(name, core)
    yield made
    made.close()
    assert len(os.listdir("/proc/self/fd")) == before, "a descriptor leaked"


def reset(peer: socket.socket) -> None:
    """Close with RST."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def read_exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(min(size - len(data), 1 << 20))
        assert piece, f"the end after {len(data)} of {size} bytes"
        data += piece
    return bytes(data)


def pattern(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)
