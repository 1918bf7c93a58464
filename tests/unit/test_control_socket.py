"""Control sockets: messages with descriptors, in order, without waiting for a peer that does not read."""

import os
import socket

from beanfield.control import Message
from beanfield.io.control_socket import ControlSocket


def pair():
    ours, theirs = socket.socketpair()
    return ControlSocket(ours), ControlSocket(theirs)


def received(control):
    return [(message.kind, message.fields, descriptors) for message, descriptors in control.receive()]


def test_descriptors_arrive_with_their_message():
    ours, theirs = pair()
    reading, writing = os.pipe()
    ours.send(Message("ping", {"number": 1}))
    ours.send(Message("link", {"peer": 0, "number": 2}, 1), [writing])
    ours.send(Message("stop", {}))
    messages = received(theirs)
    assert [kind for kind, _, _ in messages] == ["ping", "link", "stop"]
    descriptor = messages[1][2][0]
    os.write(descriptor, b"through")
    assert os.read(reading, 100) == b"through"
    os.close(descriptor)
    # The sender's copy was closed when it had been sent.
    assert os.read(reading, 100) == b""
    os.close(reading)
    ours.close()
    theirs.close()


def test_peer_that_does_not_read_gets_everything_later_in_order():
    ours, theirs = pair()
    sent = 0
    while not ours.has_unsent:
        ours.send(Message("progress", {"text": f"{sent} " + "x" * 1000}))
        sent += 1
    reading, writing = os.pipe()
    ours.send(Message("link", {"peer": 0, "number": 2}, 1), [writing])
    found = []
    while not found or found[-1][0] != "link":
        found += received(theirs)
        ours.flush()
    assert [fields["text"].split()[0] for _, fields, _ in found[:-1]] == [str(number) for number in range(sent)]
    os.close(found[-1][2][0])
    assert os.read(reading, 1) == b""
    os.close(reading)
    ours.close()
    theirs.close()


def test_end_of_the_peer_is_noticed_after_its_last_message():
    ours, theirs = pair()
    theirs.send(Message("failed", {"text": "no space"}))
    theirs.close()
    assert received(ours) == [("failed", {"text": "no space"}, [])]
    assert ours.ended
    ours.send(Message("stop", {}))
    ours.close()


def test_peer_that_sends_nonsense_has_ended():
    ours, theirs = socket.socketpair()
    control = ControlSocket(ours)
    theirs.sendall(b"hello\n")
    assert control.receive() == []
    assert control.ended
    control.close()
    theirs.close()
