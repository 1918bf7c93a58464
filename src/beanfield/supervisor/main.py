"""The supervisor's process: carries out what SupervisorCore decides, on real processes, signals and sockets.

One loop: wait for control sockets, signals and the core's deadline; tell the core all that has come, what children
said before that they ended; do what it wants. It never touches a job. Everything here is cold.
"""

import contextlib
import os
import resource
import selectors
import signal
import socket
import sys
import types

from beanfield import build, pages
from beanfield.cli.options import Ending, ServeOptions
from beanfield.constants import NEVER_NS, NS_PER_S
from beanfield.control import Message
from beanfield.io import poller
from beanfield.io.clock import now_ns, timeout_ns, wall_ns
from beanfield.io.log import log
from beanfield.io.machine import usable_cores
from beanfield.io.page import SharedPages, make_memory
from beanfield.io.process import (
    notify_service_manager,
    raise_descriptor_limit,
    set_title,
    watchdog_interval_ns,
)
from beanfield.io.root import RootFault
from beanfield.io.sockets import UNIX_PREFIX, Listener
from beanfield.ipc.frames import ROLE_FRONTEND, ROLE_OWNER
from beanfield.supervisor import core_actions as act
from beanfield.supervisor.core import SupervisorCore
from beanfield.supervisor.plan import ServerPlan
from beanfield.supervisor.processes import ChildProcess
from beanfield.supervisor.progress import Progress

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SPAWN_FAILED = 71  # the exit code told to the core for a child that the system could not start


def supervise(options: ServeOptions, listeners: list[Listener]) -> int:
    """Run the server; the exit code."""
    if options.verbosity > 0:
        sys.stdout.write(f"pid {os.getpid()}\n")
        for listener in listeners:
            sys.stdout.write(f"bind {listener.fileno()} {listener.address()}\n")
        sys.stdout.flush()
    raise_descriptor_limit()
    set_title("beanfield: supervisor")
    try:
        plan = ServerPlan(options, usable_cores())
    except RootFault as fault:
        _close(listeners, _own_unix_path(options))
        reason = f"{options.program}: {fault.reason}\n" if fault.reason else ""
        raise Ending(fault.exit_code, err=f"{reason}{options.program}: {fault.message}\n") from None
    supervisor = Supervisor(options, plan, listeners)
    return supervisor.run()


class Supervisor:
    """The loop and all that it holds."""

    def __init__(self, options: ServeOptions, plan: ServerPlan, listeners: list[Listener]) -> None:
        self._plan = plan
        self._listeners = listeners
        self._addresses = ", ".join(listener.address() for listener in listeners)
        self._core = SupervisorCore(plan.slots, 0 if plan.combined else plan.frontends, options.hang_timeout_ns)
        self._memory = make_memory(plan.slots, plan.frontends)
        self._pages = SharedPages(self._memory, plan.slots, plan.frontends)
        self._pages.begin(os.getpid(), now_ns())
        self._children: dict[tuple[int, int], ChildProcess] = {}
        self._selector = selectors.DefaultSelector()
        self._signals, self._signal_writer = socket.socketpair()
        self._progress = Progress()
        self._exit_code: int | None = None
        self._unix_path = _own_unix_path(options)
        self._watchdog_ns = watchdog_interval_ns() // 2
        self._next_watchdog_ns = now_ns() + self._watchdog_ns if self._watchdog_ns else NEVER_NS

    def run(self) -> int:
        """Until the core says exit."""
        self._catch_signals()
        self._core.start(now_ns())
        self._act()
        while self._exit_code is None:
            self._wait()
            self._reap()
            self._core.tick(now_ns())
            self._act()
            self._show_own_time()
            if now_ns() >= self._next_watchdog_ns:
                self._next_watchdog_ns = now_ns() + self._watchdog_ns
                notify_service_manager("WATCHDOG=1")
        signal.set_wakeup_fd(-1)
        return self._exit_code

    # ---------------------------------------------------------------- inputs
    def _catch_signals(self) -> None:
        self._signals.setblocking(False)
        self._signal_writer.setblocking(False)
        # The handlers do nothing: the number's byte on the socket is what wakes the loop.
        signal.set_wakeup_fd(self._signal_writer.fileno(), warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup
            signal.signal(number, _noticed)
        self._selector.register(self._signals, selectors.EVENT_READ, None)

    def _wait(self) -> None:
        deadline_ns = min(self._core.next_deadline_ns(), self._next_watchdog_ns)
        wait_ns = timeout_ns(deadline_ns, now_ns())
        for child in self._children.values():
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.control.has_unsent else 0)
            if not child.control.ended:
                self._selector.modify(child.control, events, child)
        for key, events in self._selector.select(None if wait_ns >= NEVER_NS else wait_ns / NS_PER_S):
            if key.data is None:
                self._receive_signals()
                continue
            if events & selectors.EVENT_WRITE:
                key.data.control.flush()
            if events & selectors.EVENT_READ:
                self._receive(key.data)

    def _receive_signals(self) -> None:
        try:
            numbers = self._signals.recv(4096)
        except BlockingIOError:
            return
        for number in numbers:
            if number in STOP_SIGNALS:
                log("supervisor", f"stopping on {signal.Signals(number).name}")
                self._core.stop(now_ns())
            elif number in (signal.SIGUSR1, signal.SIGUSR2):
                self._core.drain(number == signal.SIGUSR1)

    def _receive(self, child: ChildProcess) -> None:
        """All that a child has said."""
        core, role, index, generation = self._core, child.role, child.index, child.generation
        for message, descriptors in child.control.receive():
            for descriptor in descriptors:
                os.close(descriptor)
            core.child_alive(role, index, generation)
            if message.kind == "started":
                core.child_started(role, index, generation, now_ns())
            elif message.kind == "replayed":
                core.child_replayed(index, generation, message.number("created_ns"), now_ns(), wall_ns())
            elif message.kind == "ready":
                core.child_ready(index, generation, now_ns())
            elif message.kind == "drained":
                core.child_drained(index, generation, message.number("number"))
            elif message.kind == "progress":
                self._progress.told(child.role, child.index, message.text("text"), now_ns())
            elif message.kind == "failed":
                core.child_failed(role, index, generation, message.text("text"))
            elif message.kind == "link_lost":
                # A peer that has ended was collected or will be in a moment: its exit comes first.
                self._reap()
                core.link_lost(role, index, generation, message.number("peer"), message.number("number"), now_ns())
        if child.control.ended and child.control.fileno() >= 0:
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.control)

    def _reap(self) -> None:
        """Collect every process that has ended; as process 1 of a container also those nobody else collects."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for key, child in list(self._children.items()):
                if child.pid == pid:
                    self._receive(child)
                    with contextlib.suppress(KeyError, ValueError):
                        self._selector.unregister(child.control)
                    code = os.waitstatus_to_exitcode(status)
                    child.reaped(code)
                    del self._children[key]
                    self._core.child_exited(child.role, child.index, child.generation, code, now_ns())

    # ---------------------------------------------------------------- outputs
    def _act(self) -> None:
        while actions := self._core.take_actions():
            for action in actions:
                self._act_once(action)

    def _act_once(self, action: act.Action) -> None:
        kind = action.kind
        if kind == act.DO_SPAWN:
            self._spawn(action)
        elif kind == act.DO_KILL:
            child = self._children.get((action.role, action.index))
            if child is not None and child.generation == action.generation:
                child.kill()
        elif kind == act.DO_LINK:
            self._link(action.index, action.peer, action.number)
        elif kind == act.DO_SHOW:
            self._show(action)
        elif kind == act.DO_DRAINING:
            self._pages.words[pages.AREA_DRAINING] = 1 if action.on else 0
            log("supervisor", "draining: no frontend takes jobs" if action.on else "draining ended")
        elif kind == act.DO_SERVING:
            log("supervisor", f"serving on {self._addresses}; {self._plan.text()}; {build.BUILD} core, "
                f"{poller.build_name()} reactor")  # fmt: skip
            self._progress.over()
            notify_service_manager("READY=1")
        elif kind == act.DO_CLOSE_LISTENERS:
            notify_service_manager("STOPPING=1")
            self._close_listeners()
        elif kind == act.DO_LOG:
            log("supervisor", action.text)
        elif kind == act.DO_EXIT:
            self._exit_code = action.number
        else:
            self._send(action.role, action.index, _message(action))

    def _spawn(self, action: act.Action) -> None:
        role, index, generation = action.role, action.index, action.generation
        try:
            child = ChildProcess(role, index, generation)
        except OSError as error:
            self._core.child_failed(role, index, generation, f"cannot be spawned: {error}")
            self._core.child_exited(role, index, generation, SPAWN_FAILED, now_ns())
            return
        self._children[(role, index)] = child
        self._selector.register(child.control, selectors.EVENT_READ, child)
        descriptors = [os.dup(self._memory)]
        if role == ROLE_FRONTEND or self._plan.combined:
            descriptors += [os.dup(listener.fileno()) for listener in self._listeners]
        message = self._plan.start_message(role, index, generation, action.on, len(descriptors))
        child.control.send(message, descriptors)

    def _link(self, slot: int, frontend: int, number: int) -> None:
        owner_end, frontend_end = socket.socketpair()
        self._send(ROLE_OWNER, slot, Message("link", {"peer": frontend, "number": number}, 1), [owner_end.detach()])
        to_frontend = Message("link", {"peer": slot, "number": number}, 1)
        self._send(ROLE_FRONTEND, frontend, to_frontend, [frontend_end.detach()])

    def _send(self, role: int, index: int, message: Message, descriptors: list[int] | None = None) -> None:
        child = self._children.get((role, index))
        if child is not None:
            child.control.send(message, descriptors)
            return
        for descriptor in descriptors or []:
            os.close(descriptor)

    def _show(self, action: act.Action) -> None:
        index, generation, bits = action.index, action.generation, action.number
        if action.role == ROLE_OWNER:
            self._pages.show(pages.slot_live_offset(index), pages.slot_page_offset(index), generation, bits)
        if action.role == ROLE_FRONTEND or self._plan.combined:
            page_offset = pages.frontend_page_offset(self._plan.slots, index)
            self._pages.show(pages.frontend_live_offset(index), page_offset, generation, bits)

    def _show_own_time(self) -> None:
        """CPU time of the supervisor and of all children that have ended."""
        own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        self._pages.words[pages.AREA_UTIME_US] = int((own.ru_utime + ended.ru_utime) * 1_000_000)
        self._pages.words[pages.AREA_STIME_US] = int((own.ru_stime + ended.ru_stime) * 1_000_000)

    def _close_listeners(self) -> None:
        _close(self._listeners, self._unix_path)
        self._listeners = []


def _close(listeners: list[Listener], unix_path: tuple[str, tuple[int, int]] | None) -> None:
    for listener in listeners:
        listener.close()
    if unix_path is not None:
        path, identity = unix_path
        # Only what is still ours; without the right to remove it, it stays behind as a stale path.
        with contextlib.suppress(OSError):
            if _identity(path) == identity:
                os.unlink(path)


def _message(action: act.Action) -> Message:
    """The control message of an action that is just one."""
    if action.kind == act.DO_STOP:
        return Message("stop", {})
    if action.kind == act.DO_PING:
        return Message("ping", {"number": action.number})
    if action.kind == act.DO_OPEN:
        return Message("open", {"offset_ns": action.number})
    if action.kind == act.DO_SLOT_STATE:
        return Message("slot", {"slot": action.peer, "state": action.number})
    if action.kind == act.DO_ACCEPT:
        return Message("accept", {})
    assert action.kind == act.DO_DRAIN
    return Message("drain", {"number": action.number, "on": action.on})


def _noticed(_number: int, _frame: types.FrameType | None) -> None:
    """A signal's byte has been written to the wake-up socket; there is nothing else to do here."""


def _own_unix_path(options: ServeOptions) -> tuple[str, tuple[int, int]] | None:
    if options.listen is None or not options.listen.startswith(UNIX_PREFIX):
        return None
    path = os.path.abspath(options.listen[len(UNIX_PREFIX) :]) if len(options.listen) > len(UNIX_PREFIX) else ""
    with contextlib.suppress(OSError):
        return path, _identity(path)
    return None


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
