"""The process of a frontend: its core in a loop, client connections, links, its page.

It accepts by frontend/accepting.py's rules, at most one connection per turn. It knows sockets and descriptors; what
clients say is the core's business.
"""

import contextlib
import os
import socket
import sys

from beanfield import PROTOCOL_VERSION, pages
from beanfield.child import Start
from beanfield.constants import NEVER_NS, NS_PER_MS, NS_PER_S
from beanfield.control import Message
from beanfield.frontend.accepting import AcceptPolicy
from beanfield.frontend.core import FrontendCore
from beanfield.frontend.state import FrontendConfig
from beanfield.frontend.tracing import command_line, reply_lines
from beanfield.io.control_socket import ControlSocket
from beanfield.io.log import log
from beanfield.io.loop import RoleLoop
from beanfield.io.page import PageWriter, SharedPageReader
from beanfield.io.poller import CLIENT, RAW
from beanfield.io.process import descriptor_limit
from beanfield.io.sockets import ACCEPTED_NO_ROOM, Listener

FLUSH_NS = 200 * NS_PER_MS  # on stop, replies that clients have not taken by then are lost
STOP_POLL_NS = 5 * NS_PER_MS
NO_ROOM_LOG_NS = 10 * NS_PER_S
SERVER_ID_BYTES = 8
DESCRIPTORS_KEPT = 4  # beside one for each link: what a process opens now and then
NO_CONNECTIONS_MORE = 1 << 61  # shown as the connection count of a frontend that has no room: nobody waits for it


class FrontendLoop(RoleLoop):
    """RoleLoop for a FrontendCore, with clients."""

    def __init__(self, start: Start, core: FrontendCore, control: ControlSocket, page: PageWriter) -> None:
        super().__init__(start.title(), core, control, page)
        self._frontend = core
        self._start = start
        self._listeners = [Listener(socket.socket(fileno=descriptor)) for descriptor in start.listeners]
        self._watched: dict[int, Listener] = {}  # by handle, while in the poll set
        self._next_listener = 0
        self._accepting = False
        self._policy = AcceptPolicy()
        self._clients: dict[int, int] = {}  # handle: descriptor number, for -V
        self._verbose = start.setting("verbosity") > 0
        core.tracing = start.setting("verbosity") > 1
        self._limit = 0  # of descriptors
        self._clients_max = 0
        self._stop_ns = NEVER_NS
        self._next_no_room_log_ns = 0

    # ---------------------------------------------------------------- control
    def on_message(self, message: Message, descriptors: list[int], now_ns: int) -> None:
        """link, slot, accept, drain, stop."""
        if message.kind == "link":
            self._frontend.link_opened(message.number("peer"), self.add_link(message, descriptors), now_ns)
        elif message.kind == "slot":
            self._frontend.slot_state(message.number("slot"), message.number("state"), now_ns)
        elif message.kind == "accept":
            self._accepting = True
        elif message.kind == "drain":
            self._frontend.drain(message.fields["on"] is True)
            self.say("drained", {"number": message.number("number"), "on": message.fields["on"]})
        elif message.kind == "stop":
            self._accepting = False
            self._unwatch()
            for listener in self._listeners:
                listener.close()
            self._stop_ns = now_ns

    def deadline_ns(self) -> int:
        """When listeners come back into the poll set, or a stop goes on."""
        if self._stop_ns < NEVER_NS:
            return self.reactor.now_ns() + STOP_POLL_NS
        if self._accepting and not self._watched:
            return int(self._policy.away_until_ns)
        return NEVER_NS

    # ---------------------------------------------------------------- accepting
    def on_ready(self, handles: list[int]) -> None:
        """Tell the core how whole the poll was; accept at most one connection."""
        self._frontend.poll_full = self.reactor.full
        now = self.reactor.now_ns()
        if handles:
            self._consider(handles, now)
        elif self._watched:
            self._policy.nothing_waits()
        if self._accepting and not self._watched and now >= self._policy.away_until_ns:
            self._watch()

    def _consider(self, handles: list[int], now_ns: int) -> None:
        ready = [self._watched[handle] for handle in handles if handle in self._watched]
        if not ready:
            return
        elsewhere_min = self._start.pages.connections_elsewhere_min(self._start.index)
        if not self._policy.takes(self._frontend.counters.connections, elsewhere_min, now_ns):
            self._unwatch()
            return
        descriptor = ACCEPTED_NO_ROOM
        if self._has_room():
            # Several addresses take turns.
            self._next_listener += 1
            descriptor = ready[self._next_listener % len(ready)].accept()
        if descriptor >= 0:
            self._policy.accepted()
            self._open_client(descriptor, now_ns)
        elif descriptor == ACCEPTED_NO_ROOM:
            self._policy.no_room(now_ns)
            self._unwatch()
            self._show_connections()
            if now_ns >= self._next_no_room_log_ns:
                self._next_no_room_log_ns = now_ns + NO_ROOM_LOG_NS
                log(self.title, f"out of descriptors with {len(self._clients)} connections: new ones wait")

    def _has_room(self) -> bool:
        """Whether descriptors are left beside those that links need when owners restart and all links are made anew."""
        limit = descriptor_limit()
        if limit != self._limit:
            self._limit = limit
            self._clients_max = limit
        return len(self._clients) < self._clients_max

    def _open_client(self, descriptor: int, now_ns: int) -> None:
        handle = self.reactor.add(descriptor, CLIENT)
        self._clients[handle] = descriptor
        # The smallest free number is given out first: this one tells how many are in use.
        if descriptor >= self._limit - self._start.topology.slots - DESCRIPTORS_KEPT:
            self._clients_max = len(self._clients)
        if self._verbose:
            _print(f"accept {descriptor}")
        self._frontend.client_opened(handle, now_ns)
        # At once: the others decide by it.
        self._show_connections()

    def on_closed(self, handle: int) -> None:
        """A client is gone."""
        if self._frontend.trace:
            self._print_trace()  # of it too, while its descriptor is known
        descriptor = self._clients.pop(handle)
        if self._verbose:
            _print(f"close {descriptor}")

    def _print_trace(self) -> None:
        trace = self._frontend.trace
        self._frontend.trace = []
        text = []
        for at in range(0, len(trace), 2):
            handle, what = trace[at], trace[at + 1]
            assert isinstance(handle, int)
            if isinstance(what, bytes):
                lines = reply_lines(what)
            else:
                assert isinstance(what, int)
                lines = [command_line(what)]
            text += [line.replace("?", str(self._clients[handle]), 1) for line in lines]
        _print("\n".join(text))

    def _watch(self) -> None:
        for listener in self._listeners:
            self._watched[self.reactor.add(listener.fileno(), RAW)] = listener

    def _unwatch(self) -> None:
        for handle in self._watched:
            self.reactor.remove(handle)
        self._watched.clear()

    def _show_connections(self) -> None:
        shown = NO_CONNECTIONS_MORE if self._policy.exhausted else self._frontend.counters.connections
        self.page.set_word(pages.PAGE_CONNECTIONS, shown)

    # ---------------------------------------------------------------- each turn
    def on_turn(self, now_ns: int) -> None:
        """What the others read of this frontend at any moment, and the end."""
        self._show_connections()
        if self._frontend.trace:
            self._print_trace()
        if self._stop_ns < NEVER_NS:
            taken = all(self.reactor.unsent(handle) == 0 for handle in self._clients)
            # The turn of the stop itself still has to leave: look from the second on.
            if now_ns >= self._stop_ns + FLUSH_NS or (taken and now_ns >= self._stop_ns + STOP_POLL_NS):
                self.done = True


def run_frontend(start: Start, control: ControlSocket) -> int:
    """The whole life of a frontend; its exit code."""
    reader = SharedPageReader(start.pages)
    core = FrontendCore(frontend_config(start), reader)
    page = frontend_page(start, core, reader)
    loop = FrontendLoop(start, core, control, page)
    loop.say("started")
    return loop.run()


def frontend_config(start: Start) -> FrontendConfig:
    """What the core is told of the server and of the machine."""
    system = os.uname()
    return FrontendConfig(
        index=start.index,
        generation=start.generation,
        run_id=start.run_id,
        topology=start.topology,
        job_bytes_max=start.setting("job_bytes_max"),
        slot_wait_ns=start.setting("slot_wait_ns"),
        body_memory_bytes=start.setting("body_memory_bytes"),
        version=PROTOCOL_VERSION.encode(),
        # As beanstalkd's: 16 digits, another one for each run of the server.
        server_id=start.run_id[:SERVER_ID_BYTES].hex().encode(),
        hostname=os.fsencode(system.nodename),
        os=os.fsencode(system.version),
        platform=os.fsencode(system.machine),
        segment_bytes=start.setting("segment_bytes"),
    )


def frontend_page(start: Start, core: FrontendCore, reader: SharedPageReader) -> PageWriter:
    """The frontend's own page, brought up to date before each snapshot that its reader makes."""
    offset = pages.frontend_page_offset(int(start.topology.slots), start.index)
    page = PageWriter(start.pages, offset, start.generation, core.counters)
    reader.own_page = page
    return page


def _print(text: str) -> None:
    """A lost stdout stops no server."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
