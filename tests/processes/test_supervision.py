"""The supervisor with real processes: start, stop, signals, kill -9 of each role, hanging, draining, systemd."""

import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import beanfield
from tests.processes.server import (
    SERVE,
    ChildSeen,
    Server,
    free_port,
    is_running,
    processes_below,
    program_environment,
    wait_for,
    where_options,
)

# The promise is one second; the rest is for a machine that runs many tests at once.
STOP_SECONDS = 1.0 + 1.0
# 100 ms is what a user may count on; beyond it a loaded machine is allowed for.
LISTEN_SECONDS = 0.1 + 0.4
REFUSED_SECONDS = 20.0

# Stands in for the library that sets titles: it sets them, and fails the start of owners while a file says so.
FAILING_TITLES = """
import os, sys
from beanfield.errors import StartupError

stand_in = sys.modules.pop(__name__)
place = os.path.dirname(__file__)
at = sys.path.index(place)
del sys.path[at]
import setproctitle as real
sys.path.insert(at, place)
sys.modules[__name__] = stand_in


def setproctitle(title):
    real.setproctitle(title)
    if "owner" in title and os.path.exists({flag!r}):
        raise StartupError(65, "slot data is not readable")
"""


def roles(children: list[ChildSeen]) -> list[tuple[str, int]]:
    return [(child.role, child.index) for child in children]


def run_refused(arguments: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A server that is expected not to start."""
    return subprocess.run(
        [*SERVE, *arguments],
        env=program_environment() | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=REFUSED_SECONDS,
    )


def new_generation(server: Server, old_pid: int, role: str, index: int) -> ChildSeen:
    def found() -> ChildSeen | None:
        return next((c for c in server.children(role) if c.index == index and c.pid != old_pid), None)

    return wait_for(found, f"a new {role} {index}")


# ---------------------------------------------------------------- start
def test_processes_name_their_role_and_index() -> None:
    with Server(slots=2, frontends=2) as server:
        assert roles(server.children()) == [("frontend", 0), ("frontend", 1), ("owner", 0), ("owner", 1)]
        title = Path(f"/proc/{server.pid}/cmdline").read_bytes().rstrip(b"\0")
        assert title == b"beanfield: supervisor"


def test_client_that_connects_before_anything_is_loaded_is_served(record_property: object) -> None:
    port = free_port()
    began = time.monotonic()
    server = subprocess.Popen(
        [*SERVE, "-l", "127.0.0.1", "-p", str(port), "--slots", "1", "--frontends", "1"],
        env=program_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        client = wait_for(lambda: connected(port), "a listening socket")
        seconds = time.monotonic() - began
        print(f"exec to listening: {seconds * 1000:.0f} ms")
        assert seconds < LISTEN_SECONDS
        with client:
            client.settimeout(20.0)
            client.sendall(b"put 0 0 60 1\r\nx\r\nreserve\r\n")
            assert client.recv(100).startswith(b"INSERTED 1\r\n")
    finally:
        server.terminate()
        assert server.wait(10) == 0


def connected(port: int) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", port))
    except ConnectionRefusedError:
        return None


@pytest.mark.parametrize("unix", [False, True])
def test_second_server_on_the_same_address_is_refused_with_111(unix: bool) -> None:
    with Server(unix=unix) as server:
        second = run_refused(where_options(server.address))
        assert second.returncode == 111
        assert "make_server_socket()" in second.stderr
        with server.connect() as client:
            assert client.ask(b"list-tube-used") == b"USING default"


def test_child_that_cannot_start_refuses_the_whole_start_with_its_message(tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    flag.touch()
    (tmp_path / "setproctitle.py").write_text(FAILING_TITLES.format(flag=str(flag)))
    path = f"{tmp_path}:{program_environment()['PYTHONPATH']}"
    refused = run_refused(["-l", "127.0.0.1", "-p", str(free_port())], {"PYTHONPATH": path})
    assert refused.returncode == 65
    assert "owner 0 ended with exit code 65: slot data is not readable" in refused.stderr
    assert "the server does not start" in refused.stderr


def test_slot_that_cannot_start_later_is_reported_and_the_rest_serves(tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    (tmp_path / "setproctitle.py").write_text(FAILING_TITLES.format(flag=str(flag)))
    path = f"{tmp_path}:{program_environment()['PYTHONPATH']}"
    with Server(slots=2, environment={"PYTHONPATH": path}) as server:
        flag.touch()
        server.kill("owner", 1)
        server.wait_for_log("owner 1 ended with exit code 65: slot data is not readable")
        with server.connect() as client:
            # Partition 13 of "a" (of 256: 141) belongs to slot 1, `default` to slot 0.
            assert client.put(b"served") == b"INSERTED 1"
            assert client.stats()["slots-available"] == "1"
            assert client.ask(b"stats-tube a") == b"INTERNAL_ERROR"
            flag.unlink()
            server.wait_for_log("owner 1 serves again")
            # The log says so when the owner does; the frontend hears of it next.
            wait_for(lambda: client.ask(b"stats-tube a") == b"NOT_FOUND", "the slot to be served")


def test_python_without_assertions_is_refused() -> None:
    refused = run_refused(["-l", "127.0.0.1", "-p", "0"], {"PYTHONOPTIMIZE": "1"})
    assert refused.returncode == 1
    assert "python -O" in refused.stderr


def test_unknown_user_is_refused_with_33() -> None:
    refused = run_refused(["-l", "127.0.0.1", "-p", "0", "-u", "no-such-user-anywhere"])
    assert refused.returncode == 33


def test_server_becomes_the_user_of_its_option() -> None:
    user = pwd.getpwnam("nobody") if os.getuid() == 0 and all_may_use_python() else pwd.getpwuid(os.getuid())
    with Server(extra=["-u", user.pw_name]) as server:
        for pid in [server.pid, *(child.pid for child in server.children())]:
            status = Path(f"/proc/{pid}/status").read_text()
            assert f"\nUid:\t{user.pw_uid}\t{user.pw_uid}\t{user.pw_uid}\t" in status
        with server.connect() as client:
            assert client.put(b"x") == b"INSERTED 1"


def all_may_use_python() -> bool:
    """Whether another user could run this interpreter: it may stand in a home directory."""
    files = [Path(sys.executable), Path(os.__file__), Path(beanfield.__file__)]
    return all(folder.stat().st_mode & stat.S_IXOTH for file in files for folder in file.resolve().parents)


def test_verbose_server_shows_its_address_and_connections() -> None:
    with Server(extra=["-V"]) as server:
        log = server.log()
        assert f"pid {server.pid}\n" in log
        assert not isinstance(server.address, str)
        host, port = server.address
        assert f" {host}:{port}\n" in log
        server.connect().close()
        server.wait_for_log("close ")
        assert "accept " in server.log()


# ---------------------------------------------------------------- stop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_signals_end_everything_within_a_second(number: signal.Signals) -> None:
    with Server(slots=2, frontends=2) as server:
        with server.connect() as client:
            assert client.put(b"x") == b"INSERTED 1"
            began = time.monotonic()
            os.kill(server.pid, number)
            assert server.wait() == 0
            assert time.monotonic() - began < STOP_SECONDS
            assert client.ended()
        server.assert_no_orphan()
        assert not isinstance(server.address, str)
        host, port = server.address
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind((host, port))


def test_stop_does_not_wait_for_a_stopped_child() -> None:
    with Server(slots=1, frontends=1) as server:
        server.signal("owner", 0, signal.SIGSTOP)
        server.signal("frontend", 0, signal.SIGSTOP)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < STOP_SECONDS
        server.assert_no_orphan()


def test_signal_to_the_whole_group_leaves_ending_to_the_supervisor() -> None:
    with Server(slots=1, frontends=1) as server:
        children = server.children()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            for child in children:
                os.kill(child.pid, number)
        with server.connect() as client:
            assert client.put(b"x") == b"INSERTED 1"
        assert server.children() == children


def test_unix_socket_is_gone_or_replaced_after_a_stop() -> None:
    with Server(unix=True) as server:
        path = server.address
        assert isinstance(path, str)
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        assert server.stop() == 0
        assert not os.path.exists(path)


def test_killed_server_leaves_a_stale_path_that_the_next_one_takes() -> None:
    with Server(unix=True) as server:
        path = server.address
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        server.assert_no_orphan()
        process = subprocess.Popen(
            [*SERVE, *where_options(path)],
            env=program_environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            client = wait_for(lambda: unix_connected(str(path)), "the next server on the path")
            with client:
                client.sendall(b"list-tube-used\r\n")
                assert client.recv(100) == b"USING default\r\n"
        finally:
            process.terminate()
            assert process.wait(10) == 0


def unix_connected(path: str) -> socket.socket | None:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20.0)
    try:
        client.connect(path)
    except OSError:
        client.close()
        return None
    return client


# ---------------------------------------------------------------- faults
def test_every_child_ends_with_its_supervisor() -> None:
    with Server(slots=2, frontends=2) as server:
        pids = [child.pid for child in server.children()]
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        wait_for(lambda: not any(is_running(pid) for pid in pids), "the end of the children", 2.0)


def test_stopped_children_end_with_their_supervisor_too() -> None:
    with Server(slots=1, frontends=1) as server:
        pids = [server.signal(role, 0, signal.SIGSTOP) for role in ("owner", "frontend")]
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        wait_for(lambda: not any(is_running(pid) for pid in pids), "the end of the children", 2.0)


def test_killed_frontend_is_replaced_and_others_go_on() -> None:
    with Server(slots=1, frontends=2) as server:
        clients = [server.connect() for _ in range(2)]
        for client in clients:
            assert client.ask(b"list-tube-used") == b"USING default"
        old = server.kill("frontend", 0)
        alive = []
        for client in clients:
            try:
                client.send(b"list-tube-used\r\n")
                alive.append(client.line() == b"USING default")
            except ConnectionError:
                alive.append(False)
        assert sorted(alive) == [False, True]
        with server.connect() as client:
            assert client.ask(b"list-tube-used") == b"USING default"
        new_generation(server, old, "frontend", 0)
        for client in clients:
            client.close()


def test_killed_owner_is_replaced_and_no_id_comes_again() -> None:
    with Server(slots=1, frontends=1) as server:
        with server.connect() as producer, server.connect() as bystander:
            assert producer.put(b"x") == b"INSERTED 1"
            assert bystander.ask(b"list-tube-used") == b"USING default"
            old = server.kill("owner", 0)
            # Waits for the slot (--slot-wait), then goes on: without a log, the job itself is lost with its owner.
            assert bystander.put(b"y") == b"INSERTED 257"
            assert bystander.stats()["total-jobs"] == "2"
            new_generation(server, old, "owner", 0)


def test_hung_child_is_killed_and_replaced() -> None:
    with Server(slots=1, frontends=1, extra=["--hang-timeout", "2"]) as server:
        for role in ("owner", "frontend"):
            old = server.signal(role, 0, signal.SIGSTOP)
            server.wait_for_log(f"{role} 0 has not answered for 2 s: killed")
            new_generation(server, old, role, 0)
        with server.connect() as client:
            assert client.put(b"x").startswith(b"INSERTED")


def test_supervisor_that_was_stopped_kills_nobody() -> None:
    with Server(slots=1, frontends=1, extra=["--hang-timeout", "1"]) as server:
        children = server.children()
        os.kill(server.pid, signal.SIGSTOP)
        # Longer than the hang timeout; a sleep, as nothing happens that could be awaited.
        time.sleep(2.5)
        os.kill(server.pid, signal.SIGCONT)
        time.sleep(1.0)
        assert server.children() == children


def test_slot_that_crashes_again_and_again_is_given_a_rest() -> None:
    with Server(slots=2, frontends=1) as server:
        pid = server.kill("owner", 1)
        for _ in range(4):
            pid = new_generation(server, pid, "owner", 1).pid
            os.kill(pid, signal.SIGKILL)
        server.wait_for_log("slot 1 is unavailable")
        with server.connect() as client:
            assert client.put(b"x") == b"INSERTED 1"
            # "a" lies on slot 1: nobody waits for it now.
            assert client.ask(b"stats-tube a") == b"INTERNAL_ERROR"


# ---------------------------------------------------------------- connections
def test_connections_spread_evenly_over_frontends() -> None:
    with Server(slots=1, frontends=2) as server:
        clients = []
        for _ in range(32):
            client = server.connect()
            assert client.ask(b"list-tube-used") == b"USING default"
            clients.append(client)
        counts = [socket_count(child.pid) for child in server.children("frontend")]
        assert abs(counts[0] - counts[1]) <= 2
        for client in clients:
            client.close()


def test_connection_does_not_wait_for_a_frontend_that_is_stopped() -> None:
    with Server(slots=1, frontends=2) as server:
        server.signal("frontend", 0, signal.SIGSTOP)
        clients = [server.connect() for _ in range(3)]
        began = time.monotonic()
        for client in clients:
            assert client.ask(b"list-tube-used") == b"USING default"
            client.close()
        # Three times 20 ms of declining, and a margin for a busy machine.
        assert time.monotonic() - began < 0.06 + 1.0


def socket_count(pid: int) -> int:
    """Open TCP and unix sockets of a process: listener, links and control are the same number in each frontend."""
    links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return sum(link.startswith("socket:") for link in links)


# ---------------------------------------------------------------- drain
def test_drain_refuses_jobs_on_every_frontend_until_it_ends() -> None:
    with Server(slots=1, frontends=2) as server:
        clients = [server.connect() for _ in range(2)]
        for client in clients:
            assert client.ask(b"list-tube-used") == b"USING default"
        os.kill(server.pid, signal.SIGUSR1)
        server.wait_for_log("draining: no frontend takes jobs")
        for client in clients:
            assert client.put(b"x") == b"DRAINING"
            assert client.stats()["draining"] == "true"
        old = server.kill("frontend", 0)
        new_generation(server, old, "frontend", 0)
        for _ in range(4):
            with server.connect() as client:
                assert client.put(b"x") == b"DRAINING"
        os.kill(server.pid, signal.SIGUSR2)
        server.wait_for_log("draining ended")
        with server.connect() as client:
            assert client.put(b"x") == b"INSERTED 1"
        for client in clients:
            client.close()


# ---------------------------------------------------------------- systemd
def test_service_manager_passes_the_socket_and_hears_of_readiness_watchdog_and_stop(tmp_path: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notified.bind(str(tmp_path / "notify"))
    notified.settimeout(20.0)
    environment = program_environment() | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    # As systemd does: the socket is descriptor 3, and LISTEN_PID is the id that the program will have.
    launcher = 'exec 3<&"$0"; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
    server = subprocess.Popen(
        ["bash", "-c", launcher, str(listening.fileno()), *SERVE, "-p", "1"],
        env=environment,
        pass_fds=(listening.fileno(),),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while (word := notified.recv(100)) == b"WATCHDOG=1":
            pass
        assert word == b"READY=1"
        assert notified.recv(100) == b"WATCHDOG=1"
        with socket.create_connection(listening.getsockname()) as client:
            client.settimeout(20.0)
            client.sendall(b"list-tube-used\r\n")
            assert client.recv(100) == b"USING default\r\n"
        server.terminate()
        while (word := notified.recv(100)) == b"WATCHDOG=1":
            pass
        assert word == b"STOPPING=1"
    finally:
        server.terminate()
        _, errors = server.communicate(timeout=20)
        notified.close()
        listening.close()
    assert server.returncode == 0
    assert "inherited listen fd; ignoring option: -p1" in errors
    assert processes_below(server.pid) == []
