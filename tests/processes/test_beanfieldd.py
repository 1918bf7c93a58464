"""`beanfieldd` as what starts beanstalkd sees it: streams, exit codes, the environment."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from beanfield import PROTOCOL_VERSION
from tests.processes.server import free_port, program_environment, wait_for

# As the installed command does.
BEANFIELDD = [sys.executable, "-m", "beanfield.cli.beanfieldd"]
SECONDS = 20.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BEANFIELDD, *arguments],
        env=program_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_version_is_shown_in_beanstalkds_shape() -> None:
    shown = run("-v")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"beanstalkd {PROTOCOL_VERSION}\n", "")


def test_help_is_shown_on_stderr() -> None:
    shown = run("-h")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr.startswith("Use: beanfieldd [OPTIONS]\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["-x"], "unknown flag: -x"), (["foo"], "unknown argument: foo"), (["-p"], "flag requires an argument: -p")],
)
def test_misuse_exits_with_5_and_usage(arguments: list[str], message: str) -> None:
    shown = run(*arguments)
    assert (shown.returncode, shown.stdout) == (5, "")
    assert shown.stderr.splitlines()[0] == f"beanfieldd: {message}"
    assert "Use: beanfieldd" in shown.stderr


def test_address_that_cannot_be_had_exits_with_111(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a socket")
    for arguments in (["-l", "192.0.2.1"], ["-p", "no-such-service"], ["-l", f"unix:{in_the_way}"]):
        shown = run(*arguments)
        assert shown.returncode == 111, arguments
        assert shown.stderr.startswith("beanfieldd: make_server_socket()")
    assert in_the_way.read_text() == "not a socket"


def test_shape_comes_from_the_environment() -> None:
    port = free_port()
    server = subprocess.Popen(
        [*BEANFIELDD, f"-Vp{port}", "-l127.0.0.1", "-z", "10"],
        env=program_environment() | {"BEANFIELD_SLOTS": "3", "BEANFIELD_FRONTENDS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"pid %d\n" % server.pid
        assert server.stdout.readline().endswith(b" 127.0.0.1:%d\n" % port)
        with wait_for(lambda: socket.create_connection(("127.0.0.1", port)), "a connection") as client:
            client.settimeout(SECONDS)
            client.sendall(b"put 0 0 1 11\r\n12345678901\r\n")
            assert client.recv(100) == b"JOB_TOO_BIG\r\n"
            client.sendall(b"stats\r\n")
            text = b""
            while b"frontends-available" not in text:
                text += client.recv(65536)
            assert b"\nslots: 3\n" in text and b"\nmax-job-size: 10\n" in text
    finally:
        os.kill(server.pid, signal.SIGTERM)
        server.communicate(timeout=SECONDS)
    assert server.returncode == 0
