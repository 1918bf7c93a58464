"""What `-V -V` prints while clients speak, in every shape, with and without a log: beanstalkd's lines, and no crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.server import Server
from tests.transcripts.servers import OURS, Shape

BODY = b"\xff\xfe\r\nDELETED\r\n" + bytes(range(256)) * 20


@pytest.mark.parametrize("shape", OURS, ids=lambda shape: shape.name)
@pytest.mark.parametrize("logged", [False, True], ids=["memory", "log"])
def test_twice_verbose_server_shows_commands_and_replies_as_beanstalkd(
    shape: Shape, logged: bool, tmp_path: Path
) -> None:
    options = ["-V", "-V", *(["-b", str(tmp_path)] if logged else [])]
    with Server(slots=shape.slots, frontends=shape.frontends, unix=shape.unix, extra=options) as server:
        with server.connect() as client:
            # The answer and the end of the connection come in one turn.
            client.send(b"use a\r\nput 0 0 9 3\r\nabc\r\nquit\r\n")
            assert client.line() == b"USING a"
            first = client.line().split()[1].decode()
            assert client.ended()
        with server.connect() as client:
            second = client.put(BODY).split()[1].decode()
            word, _, size = client.ask(b"reserve").split()
            assert (word, client.body(int(size))) == (b"RESERVED", BODY)
            assert client.ask(b"nonsense") == b"UNKNOWN_COMMAND"
            assert client.ask(b"list-tubes-watched") == b"OK 14"
        server.wait_for_log("job 0\n")
        shown = [line.split(" ", 1)[1] for line in server.log().splitlines() if line[:1] in "<>" and " " in line]
        assert sorted(shown) == sorted(
            [
                "command use ", "reply USING a", "command put ", f"job {first}", f"reply INSERTED {first}",
                "command quit", "command put ", f"job {second}", f"reply INSERTED {second}", "command reserve",
                f"reply RESERVED {second} {len(BODY)}", f"job {second}", "command <unknown>", "reply UNKNOWN_COMMAND",
                "command list-tubes-watched", "reply OK 14", "job 0",
            ]
        )  # fmt: skip
        assert "Traceback" not in server.log()
