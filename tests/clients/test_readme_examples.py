"""The examples of README.md do what it says, on a fresh server of the default shape."""

import os
import re

from tests.processes.server import Server
from tests.tidy.rules import ROOT

README = (ROOT / "README.md").read_text()


def netcat_examples() -> list[tuple[bytes, bytes]]:
    """What each `printf … | nc` line sends, and the lines that README shows below it."""
    found = []
    for sent, shown in re.findall(r"^    \$ printf '(.*)' \| nc .*\n((?:    [^$\n].*\n)+)", README, re.MULTILINE):
        replies = "".join(line.removeprefix("    ") + "\r\n" for line in shown.splitlines())
        found.append((sent.replace("\\r", "\r").replace("\\n", "\n").encode(), replies.encode()))
    return found


def test_the_netcat_examples_answer_as_shown() -> None:
    examples = netcat_examples()
    assert len(examples) >= 2
    with Server(slots=os.cpu_count() or 1, frontends=2) as server:
        for sent, replies in examples:
            with server.connect() as client:
                client.send(sent)
                received = b""
                while chunk := client.socket.recv(65_536):
                    received += chunk
            assert received == replies


def test_the_client_library_example_gets_the_job_it_put() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    with Server() as server:
        assert "11300" in example
        printed: list[tuple[object, ...]] = []
        names: dict[str, object] = {"print": lambda *values: printed.append(values)}
        assert isinstance(server.address, tuple)
        exec(example.replace("11300", str(server.address[1])), names)
        assert printed == [(printed[0][0], "to: ada@example.org")]
        with server.connect() as client:
            assert client.stats()["current-jobs-ready"] == "0"
