"""Long work beside the control socket: pings are answered with progress, and what the work raises comes out."""

import socket
import threading

import pytest

from beanfield.control import Message
from beanfield.io.beside import beside
from beanfield.io.control_socket import ControlSocket


def test_a_ping_is_answered_with_progress_and_a_drain_disturbs_nothing() -> None:
    ours, theirs = socket.socketpair()
    supervisor, child = ControlSocket(ours), ControlSocket(theirs)
    told = threading.Event()
    supervisor.send(Message("drain", {"number": 1, "on": True}))
    supervisor.send(Message("ping", {"number": 1}))

    def progress() -> str:
        told.set()
        return "7 of 9"

    beside(child, lambda: None if told.wait(10.0) else pytest.fail("no ping was noticed"), progress)
    messages = [message for message, _ in supervisor.receive()]
    assert [(message.kind, message.text("text")) for message in messages] == [("progress", "7 of 9")]
    supervisor.close()
    child.close()


def test_what_the_work_raises_comes_out() -> None:
    ours, theirs = socket.socketpair()
    child = ControlSocket(theirs)

    def fail() -> None:
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        beside(child, fail, lambda: "")
    ours.close()
    child.close()
