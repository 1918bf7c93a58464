"""A child of the supervisor, from exec to its role's loop.

It ends with its supervisor, ignores what hits the whole process group, and obeys its control socket, whose first
message says what it is. A child that cannot start says why, and exits with a code of its own.
"""

import os
import select
import signal
import socket
import sys

from beanfield.constants import EXIT_BAD_OPTION, NS_PER_S
from beanfield.control import Message
from beanfield.errors import StartupError
from beanfield.io.clock import now_ns
from beanfield.io.control_socket import ControlSocket
from beanfield.io.log import log
from beanfield.io.page import SharedPages
from beanfield.io.process import (
    GROUP_SIGNALS,
    ParentGone,
    die_with_parent,
    ignore_group_signals,
    raise_descriptor_limit,
    set_title,
)
from beanfield.io.root import slot_path
from beanfield.routing import Topology, TopologyError

EXIT_SUPERVISOR_GONE = 0
LAST_WORDS_NS = 1 * NS_PER_S  # how long a child that cannot start tries to say why


class Start:
    """What the first message says, unpacked."""

    def __init__(self, message: Message, descriptors: list[int]) -> None:
        assert message.kind == "start"
        self.role = message.text("role")
        self.index = message.number("index")
        self.generation = message.number("generation")
        self.run_id = bytes.fromhex(message.text("run_id"))
        self.frontends = message.number("frontends")
        slots_of_map = message.fields["map"]
        assert isinstance(slots_of_map, list)
        cluster_id = bytes.fromhex(message.text("cluster_id"))
        self.topology = Topology(message.number("partitions"), message.number("slots"), slots_of_map, cluster_id)
        settings = message.fields["settings"]
        assert isinstance(settings, dict)
        self.settings: dict[str, object] = settings
        self.probe = message.fields["probe"] is True  # an owner whose disk has failed: tries it before all else
        self.pages = SharedPages(descriptors[0], message.number("slots"), self.frontends)
        os.close(descriptors[0])
        self.listeners = descriptors[1:]

    def setting(self, name: str) -> int:
        """One of the server's settings that are numbers."""
        value = self.settings[name]
        assert isinstance(value, int)
        return value

    def slot_path(self) -> str:
        """The directory of this owner's slot; empty without -b."""
        path = self.settings["wal_directory"]
        assert isinstance(path, str)
        return slot_path(path, self.index) if path else ""

    def title(self) -> str:
        """As in the process title and the log. A combined process is the owner of its slot, before all else."""
        return f"{'owner' if self.role == 'combined' else self.role} {self.index}"


def main() -> None:
    """Entered by the exec that supervisor/processes.py makes: argv is module path, control descriptor, parent's id."""
    control_descriptor, parent_pid = int(sys.argv[2]), int(sys.argv[3])
    ignore_group_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    try:
        die_with_parent(parent_pid)
    except ParentGone:
        sys.exit(EXIT_SUPERVISOR_GONE)
    raise_descriptor_limit()
    os.set_inheritable(control_descriptor, False)
    control = ControlSocket(socket.socket(fileno=control_descriptor))
    message, descriptors = _first_message(control)
    try:
        start = Start(message, descriptors)
        set_title(f"beanfield: {start.title()}")
        code = _run_role(start, control)
    except StartupError as error:
        _say_why(control, error.message)
        sys.exit(error.exit_code)
    except TopologyError as error:
        _say_why(control, str(error))
        sys.exit(EXIT_BAD_OPTION)
    sys.exit(code)


def _run_role(start: Start, control: ControlSocket) -> int:
    if start.role == "owner":
        from beanfield.owner.main import run_owner

        return run_owner(start, control)
    if start.role == "combined":
        from beanfield.combined.main import run_combined

        return run_combined(start, control)
    assert start.role == "frontend"
    from beanfield.frontend.main import run_frontend

    return run_frontend(start, control)


def _first_message(control: ControlSocket) -> tuple[Message, list[int]]:
    while True:
        select.select([control], [], [])
        messages = control.receive()
        if messages:
            # The supervisor says nothing more before it has an answer, but for pings and stop.
            assert messages[0][0].kind == "start"
            for message, _ in messages[1:]:
                if message.kind == "stop":
                    sys.exit(0)
            return messages[0]
        if control.ended:
            sys.exit(EXIT_SUPERVISOR_GONE)


def _say_why(control: ControlSocket, text: str) -> None:
    control.send(Message("failed", {"text": text}))
    give_up_ns = now_ns() + LAST_WORDS_NS
    while control.has_unsent and not control.ended and now_ns() < give_up_ns:
        select.select([], [control], [], 0.05)
        control.flush()
    if control.ended:
        log("child", text)
