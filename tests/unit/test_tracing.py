"""What -V -V shows of commands and replies."""

import pytest

from beanfield.frontend.tracing import command_line, reply_lines
from beanfield.ipc import frames
from beanfield.proto import ops
from tests.unit.frontend_driver import Frontend, S, made


@pytest.mark.parametrize(
    ("op", "shown"),
    [
        (ops.OP_PUT, "<? command put "),
        (ops.OP_RESERVE, "<? command reserve"),
        (ops.OP_RESERVE_TIMEOUT, "<? command reserve-with-timeout "),
        (ops.OP_PAUSE_TUBE, "<? command pause-tube"),
        (0, "<? command <unknown>"),
    ],
)
def test_a_command_is_shown_as_beanstalkd_has_it_in_its_table(op: int, shown: str) -> None:
    assert command_line(op) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"INSERTED 7\r\n", ["<? job 7", ">? reply INSERTED 7"]),
        (b"RESERVED 7 3\r\na\r\n\r\nDELETED\r\n", [">? reply RESERVED 7 3", ">? job 7", ">? reply DELETED"]),
        (b"OK 4\r\n---\n\r\nBURIED\r\n", [">? reply OK 4", ">? job 0", ">? reply BURIED"]),
        (b"FOUND 7 100000\r\nbegins", [">? reply FOUND 7 100000", ">? job 7"]),
    ],
)
def test_each_reply_in_a_text_is_shown_by_its_line(text: bytes, shown: list[str]) -> None:
    assert reply_lines(text) == shown


def test_a_body_that_goes_to_the_client_as_a_piece_of_its_own_is_not_taken_for_replies() -> None:
    f = Frontend()
    client = f.open()
    f.frames()
    f.say(client, b"reserve\r\n")
    f.core.tracing = True
    body = b"\xff\r\nDELETED\r\n" + bytes(5_000)
    reserve = f.frame()
    fields = (1).to_bytes(8, "little") + (7).to_bytes(8, "little") + S.to_bytes(8, "little")
    whole = made(
        frames.RESERVED, reserve.session, reserve.request, (), fields + b"RESERVED 7 %d\r\n%b\r\n" % (len(body), body)
    )
    f.core.link_received(f.handles[0], whole[: -len(body) - 2], f.now)
    f.core.link_received(f.handles[0], whole[-len(body) - 2 :], f.now)
    f.turn()
    assert f.replies(client) == b"RESERVED 7 %d\r\n%b\r\n" % (len(body), body)
    assert f.core.trace == [client, b"RESERVED 7 %d\r\n" % len(body)]
    assert reply_lines(b"RESERVED 7 %d\r\n" % len(body)) == [f">? reply RESERVED 7 {len(body)}", ">? job 7"]


def test_the_core_notes_commands_and_replies_only_when_asked_to() -> None:
    f = Frontend()
    client = f.open()
    f.say(client, b"list-tube-used\r\n")
    assert f.core.trace == []
    f.core.tracing = True
    f.say(client, b"list-tube-used\r\nput 0 0 1 5\r\nab")
    f.say(client, b"cdefgx\r\n")
    assert f.core.trace == [
        client, ops.OP_LIST_TUBE_USED, client, b"USING default\r\n", client, ops.OP_PUT,
        client, b"EXPECTED_CRLF\r\n", client, 0, client, b"UNKNOWN_COMMAND\r\n",
    ]  # fmt: skip
