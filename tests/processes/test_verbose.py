"""What -V -V prints: accepted connections, commands and replies, in beanstalkd's words."""

import re

import pytest

from tests.processes.server import Server, wait_for

CONVERSATION = (
    b"put 0 0 60 5\r\nhello\r\nreserve\r\npeek 1\r\nfoo\r\npause-tube default 1\r\nput 0 0 1 2\r\nabxx"
    b"stats-job 1\r\ndelete 1\r\nquit\r\n"
)
# beanstalkd 1.12's own lines, but that the size of the statistics is ours.
SHOWN = [
    "<FD command put ",
    "<FD job 1",
    ">FD reply INSERTED 1",
    "<FD command reserve",
    ">FD reply RESERVED 1 5",
    ">FD job 1",
    "<FD command peek ",
    ">FD reply FOUND 1 5",
    ">FD job 1",
    "<FD command <unknown>",
    ">FD reply UNKNOWN_COMMAND",
    "<FD command pause-tube",
    ">FD reply PAUSED",
    "<FD command put ",
    ">FD reply EXPECTED_CRLF",
    "<FD command stats-job ",
    ">FD reply OK SIZE",
    ">FD job 0",
    "<FD command delete ",
    ">FD reply DELETED",
    "<FD command quit",
]


def lines_of(log: str) -> list[str]:
    """The conversation, with FD for descriptors and SIZE for the size of statistics."""
    shown = [re.sub(r"^([<>])\d+ ", r"\1FD ", line) for line in log.splitlines() if re.match(r"[<>]\d+ ", line)]
    return [re.sub(r" OK \d+$", " OK SIZE", line) for line in shown]


@pytest.mark.parametrize("frontends", [0, 1])
def test_twice_verbose_server_shows_commands_and_replies_as_beanstalkd(frontends: int) -> None:
    with Server(slots=1, frontends=frontends, extra=["-V", "-V"]) as server:
        with server.connect() as client:
            client.send(CONVERSATION)
            assert client.ended()
        wait_for(lambda: "<FD command quit" in lines_of(server.log()), "the last command in the log")
        # Pipelined commands may be shown ahead of the replies to those before; each kind keeps its order.
        for kind in "<>":
            shown = [line for line in lines_of(server.log()) if line.startswith(kind) and " job " not in line]
            assert shown == [line for line in SHOWN if line.startswith(kind) and " job " not in line]
        assert sorted(lines_of(server.log())) == sorted(SHOWN)
        assert f"pid {server.pid}\n" in server.log()
