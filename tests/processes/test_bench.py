"""`beanfield bench` as a command, against beanstalkd, servers that misbehave, and its own server."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.processes.server import free_port, program_environment

BENCH = [sys.executable, "-m", "beanfield", "bench", "--quiet"]
SECONDS_MAX = 60  # for one command; a busy machine is slow to start processes
BEANSTALKD = shutil.which("beanstalkd") or "/usr/bin/beanstalkd"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*BENCH, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, env=program_environment())


def wait_for_port(port: int) -> None:
    limit = time.monotonic() + SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < limit
            time.sleep(0.01)


@contextmanager
def running_beanstalkd() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Its port and process."""
    port = free_port()
    with subprocess.Popen([BEANSTALKD, "-l", "127.0.0.1", "-p", str(port)]) as process:
        try:
            wait_for_port(port)
            yield port, process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def beanstalkd() -> Iterator[int]:
    """The port of one that all tests of this file may use."""
    with running_beanstalkd() as (port, _):
        yield port


def ask(port: int, command: bytes) -> bytes:
    """The whole reply of one command."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(command + b"\r\nquit\r\n")
        reply = b""
        while data := connection.recv(65_536):
            reply += data
        return reply


def test_every_workload_runs_cleanly_against_beanstalkd_and_leaves_nothing(beanstalkd: int) -> None:
    workloads = "cycle,put,multi,pair,single,pipelined,sizes,mixed"
    length = ["--seconds", "0.3", "--warm-up", "0.1"]
    done = bench("--against", f"127.0.0.1:{beanstalkd}", "--workload", workloads, *length, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    told = json.loads(done.stdout)
    assert [run["workload"] for run in told["runs"]] == workloads.split(",")
    for run in told["runs"]:
        (server,) = run["servers"]
        (figures,) = server["rounds"]
        assert figures["commands"] > 0 and figures["seconds"] >= 0.3
        times = figures["latency_us"]
        assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= times["p99.9"] <= times["max"]
        assert sum(step["commands"] for step in figures["steps"].values()) == figures["commands"]
        assert server["version"]
    assert b"\ncurrent-jobs-ready: 0\n" in ask(beanstalkd, b"stats")
    assert b"\ncurrent-jobs-delayed: 0\n" in ask(beanstalkd, b"stats")


def test_a_number_of_jobs_in_several_processes_is_exact(beanstalkd: int) -> None:
    done = bench("--against", f"127.0.0.1:{beanstalkd}", "--jobs", "1001", "--processes", "2", "--depth", "3", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["runs"][0]["servers"][0]["rounds"][0]
    assert {name: step["commands"] for name, step in figures["steps"].items()} == {
        "put": 1001,
        "reserve": 1001,
        "delete": 1001,
    }
    assert len(figures["generator_cpu_share"]) == 2


def test_jobs_are_kept_when_asked(beanstalkd: int) -> None:
    arguments = ["--against", f"127.0.0.1:{beanstalkd}", "--workload", "put", "--jobs", "50", "--tubes", "1"]
    done = bench(*arguments, "--keep-jobs", "--tube-prefix", "kept-")
    assert done.returncode == 0 and "put" in done.stdout
    assert b"\ncurrent-jobs-ready: 50\n" in ask(beanstalkd, b"stats-tube kept-0")
    done = bench(*arguments, "--tube-prefix", "kept-")
    assert done.returncode == 0
    assert ask(beanstalkd, b"stats-tube kept-0") == b"NOT_FOUND\r\n"


def test_an_own_server_and_another_are_measured_in_turn_and_ended() -> None:
    peer = f"peer={BEANSTALKD} -l 127.0.0.1 -p {{port}}"
    done = bench("--seconds", "0.3", "--warm-up", "0", "--rounds", "2", "--compare-with", peer)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    heading, columns, own, other, *_ = done.stdout.splitlines()
    assert heading.startswith("cycle: 64 connections, 8 tubes")
    assert own.split()[0] == "beanfield" and other.split()[0] == "peer"
    assert len(other.split()) == len(own.split()) + 2  # the two ratios


def test_unexpected_replies_are_shown_and_fail_the_command(beanstalkd: int) -> None:
    done = bench("--against", f"127.0.0.1:{beanstalkd}", "--body", "100,100000", "--seconds", "0.3")
    assert done.returncode == 1
    assert "unexpected replies: put: JOB_TOO_BIG" in done.stdout


def test_no_server_there_is_said_in_a_line() -> None:
    port = free_port()
    done = bench("--against", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr == f"beanfield bench: cannot connect to 127.0.0.1:{port}: Connection refused\n"


def test_a_server_that_does_not_start_is_said_with_its_words() -> None:
    done = bench("--compare-with", "bad=/bin/sh -c 'echo no room here for {port} >&2; exit 3'", "--seconds", "0.1")
    assert done.returncode == 1
    assert done.stderr.startswith("beanfield bench: bad ended with code 3: no room here for ")


def serve_once(listener: socket.socket, reply: bytes) -> None:
    """Takes connections, answers the first bytes of each, and closes it."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(65_536)
            connection.sendall(reply)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "says 'HTTP/1.1 400 Bad Request'"),
        (b"", "ended 4 of 4 connections at once"),
    ],
)
def test_a_server_of_another_kind_is_recognised(reply: bytes, message: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=serve_once, args=(listener, reply), daemon=True).start()
        port = listener.getsockname()[1]
        done = bench("--against", f"127.0.0.1:{port}", "--connections", "4")
        listener.shutdown(socket.SHUT_RDWR)
    assert done.returncode == 1
    assert message in done.stderr


def start_until_measuring(port: int, *arguments: str) -> subprocess.Popen[str]:
    """A bench with a long way to go, already sending."""
    command = [*BENCH, "--against", f"127.0.0.1:{port}", "--seconds", "600", "--warm-up", "0", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=program_environment()
    )
    limit = time.monotonic() + SECONDS_MAX
    while b"\ncmd-delete: 0\n" in ask(port, b"stats"):
        assert process.poll() is None and time.monotonic() < limit
    return process


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_interrupt_shows_what_was_measured_so_far(processes: str) -> None:
    with running_beanstalkd() as (port, _):
        process = start_until_measuring(port, "--processes", processes)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, error) == (130, "")
    assert "warning: interrupted after" in out and "delete " in out


def test_a_server_that_goes_away_is_reported_with_what_was_measured() -> None:
    with running_beanstalkd() as (port, server):
        process = start_until_measuring(port, "--connections", "5")
        server.kill()
        out, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    assert "the server ended 5 of 5 connections during the run" in out
