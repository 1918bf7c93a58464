"""The loop of a role: poll, control socket, one turn of the core, publish, flush, carry out.

    while not done:
        reactor.poll(core)          bytes go into the core; the control socket and listeners are reported
        core.turn()
        publish the counters        before any reply leaves: what a client has seen, the pages show
        reactor.flush(outbox)
        what nobody waits for (a word to the operator)
        carry out close, pause, resume

RoleLoop holds what both roles need; owner/main.py and frontend/main.py add their messages. It knows no job and no
client protocol. An exception out of a core is a bug: the process ends, and the supervisor starts a new generation.
"""

import gc
import os

from beanfield.constants import NEVER_NS, NS_PER_MS, NS_PER_S
from beanfield.control import Message
from beanfield.io.control_socket import ControlSocket
from beanfield.io.page import PageWriter
from beanfield.io.poller import LINK, RAW, Reactor
from beanfield.ipc.actions import ACT_CLOSE, ACT_PAUSE, ACT_RESUME
from beanfield.ipc.role import RoleCore

SIGN_OF_LIFE_NS = 100 * NS_PER_MS  # the page's time and CPU time are brought up to date at most this often
POLL_NS_MAX = 3_600 * NS_PER_S


class RoleLoop:
    """One role's process. Subclasses override the on_ methods."""

    def __init__(self, title: str, core: RoleCore, control: ControlSocket, page: PageWriter) -> None:
        self.title = title
        self.core = core
        self.control = control
        self.page = page
        self.reactor = Reactor()
        self.exit_code = 0
        self.done = False
        self._links: dict[int, tuple[int, int]] = {}  # handle: peer, link number
        self._control_handle = self.reactor.add(control.fileno(), RAW)
        self._next_sign_ns = 0

    # ---------------------------------------------------------------- for subclasses
    def on_message(self, message: Message, descriptors: list[int], now_ns: int) -> None:
        """A control message that is not a ping. Takes the descriptors."""
        raise NotImplementedError

    def on_ready(self, handles: list[int]) -> None:
        """After every poll: the raw handles that are readable, the control socket's left out."""

    def on_turn(self, now_ns: int) -> None:
        """After the core's turn, before its counters are published."""

    def on_flushed(self, now_ns: int) -> None:
        """After the flush: what nobody waits for."""

    def on_closed(self, handle: int) -> None:
        """The core is done with a handle that is no link."""

    def deadline_ns(self) -> int:
        """When the loop itself has something to do."""
        return NEVER_NS

    # ---------------------------------------------------------------- the loop
    def run(self) -> int:
        """Until done; the exit code."""
        # Nothing in a core holds a cycle, so counting alone frees everything; what is loaded by now stays.
        gc.collect()
        gc.freeze()
        gc.disable()
        while not self.done:
            self._turn()
        return self.exit_code

    def _turn(self) -> None:
        reactor, core = self.reactor, self.core
        deadline = min(core.next_deadline_ns(), self.deadline_ns())
        # A pause may last for decades; what the kernel takes for a timeout is less. Waking for nothing is harmless.
        timeout = deadline if deadline >= NEVER_NS else min(max(deadline - reactor.now_ns(), 0), POLL_NS_MAX)
        handles = reactor.poll(core, timeout)
        if self._control_handle in handles:
            handles.remove(self._control_handle)
            self._receive_control()
        self.on_ready(handles)
        now = reactor.now_ns()
        core.turn(now)
        self.on_turn(now)
        if now >= self._next_sign_ns:
            self._next_sign_ns = now + SIGN_OF_LIFE_NS
            self.page.sign_of_life(now)
        self.page.publish()
        outbox = core.take_outbox()
        if outbox:
            reactor.flush(outbox)
        self.on_flushed(now)
        actions = core.take_actions()
        if actions:
            self._act(actions)
        if self.control.has_unsent:
            self.control.flush()

    def _act(self, actions: list[int]) -> None:
        for at in range(0, len(actions), 2):
            action, handle = actions[at], actions[at + 1]
            if action == ACT_CLOSE:
                link = self._links.pop(handle, None)
                if link is None:
                    self.on_closed(handle)
                else:
                    self.control.send(Message("link_lost", {"peer": link[0], "number": link[1]}))
                self.reactor.close(handle)
            elif action == ACT_PAUSE:
                self.reactor.pause(handle)
            else:
                assert action == ACT_RESUME
                self.reactor.resume(handle)

    def _receive_control(self) -> None:
        for message, descriptors in self.control.receive():
            if message.kind == "ping":
                self.control.send(Message("pong", {"number": message.number("number")}))
            else:
                self.on_message(message, descriptors, self.reactor.now_ns())
        if self.control.ended:
            # Without a supervisor nobody restarts what fails, and a new one must find ports and locks free.
            os._exit(0)

    def add_link(self, message: Message, descriptors: list[int]) -> int:
        """Watch the socket of a link message; its handle."""
        assert message.kind == "link" and len(descriptors) == 1
        handle = self.reactor.add(descriptors[0], LINK)
        self._links[handle] = (message.number("peer"), message.number("number"))
        return handle

    def say(self, kind: str, fields: dict[str, object] | None = None) -> None:
        """A message to the supervisor."""
        self.control.send(Message(kind, fields or {}))
