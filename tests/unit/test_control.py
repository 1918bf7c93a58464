"""Control messages: lines in and out, whatever their pieces, and what is refused."""

import pytest

from beanfield.control import LINE_BYTES_MAX, ControlFault, Message, MessageReader, decode


def messages_of(reader):
    found = []
    while (message := reader.next()) is not None:
        found.append((message.kind, message.fields, message.fds))
    return found


def test_messages_survive_any_split():
    sent = [
        Message("ping", {"number": 7}),
        Message("link", {"peer": 3, "number": 12}, fds=1),
        Message("failed", {"text": "line\nbreak and \u00e9"}),
        Message("stop", {}),
    ]
    stream = b"".join(message.encode() for message in sent)
    expected = [(m.kind, m.fields, m.fds) for m in sent]
    for size in (1, 2, 7, len(stream)):
        reader = MessageReader()
        found = []
        for begin in range(0, len(stream), size):
            reader.receive(stream[begin : begin + size])
            found += messages_of(reader)
        assert found == expected, size


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1]",
        b'{"kind":"ping","number":1}',
        b'{"kind":"ping","number":1,"fds":-1}',
        b'{"kind":"ping","number":1,"fds":true}',
        b'{"kind":"nonsense","fds":0}',
        b'{"kind":"ping","fds":0}',
        b'{"kind":"ping","fds":0,"number":"1"}',
        b'{"kind":"ping","fds":0,"number":true}',
        b'{"kind":"ping","fds":0,"number":1,"extra":1}',
        b'{"kind":"drain","fds":0,"number":1,"on":1}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_message_is_refused(line):
    with pytest.raises(ControlFault):
        decode(line)


def test_endless_line_is_refused():
    reader = MessageReader()
    reader.receive(b"x" * (LINE_BYTES_MAX + 1))
    with pytest.raises(ControlFault):
        reader.next()
