"""Listening sockets and what a process asks of the system, on real sockets of the loopback interface."""

import errno
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanfield.constants import UNIX_PATH_BYTES_MAX
from beanfield.io import process, sockets
from beanfield.io.sockets import ACCEPTED_NO_ROOM, ACCEPTED_NONE, Listener, ListenError, listen


@pytest.fixture
def short_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Paths of temporary directories are long, and those of unix sockets must be short: so they are relative."""
    monkeypatch.chdir(tmp_path)
    yield Path(".")


def port_of(listener: Listener) -> int:
    return int(listener.socket.getsockname()[1])


def test_a_tcp_listener_takes_connections_with_keepalive_and_nodelay() -> None:
    listener = listen("127.0.0.1", "0")
    assert listener.accept() == ACCEPTED_NONE
    with socket.create_connection(("127.0.0.1", port_of(listener)), timeout=5):
        accepted = socket.socket(fileno=listener.accept())
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        accepted.close()
    assert listener.address() == f"127.0.0.1:{port_of(listener)}"
    listener.close()


def test_a_tcp_address_belongs_to_one_listener() -> None:
    first = listen("127.0.0.1", "0")
    assert first.socket.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 0
    with pytest.raises(ListenError, match="in use"):
        listen("127.0.0.1", str(port_of(first)))
    with pytest.raises(ListenError, match="in use"):
        listen(None, str(port_of(first)))
    first.close()


def test_an_address_is_free_again_while_old_connections_linger() -> None:
    first = listen("127.0.0.1", "0")
    port = port_of(first)
    client = socket.create_connection(("127.0.0.1", port), timeout=5)
    server_side = socket.socket(fileno=first.accept())
    server_side.close()  # the server's side closes first: TIME_WAIT is on this port
    client.close()
    first.close()
    listen("127.0.0.1", str(port)).close()


def test_no_host_means_all_of_ipv4() -> None:
    listener = listen(None, "0")
    assert listener.address() == f"0.0.0.0:{port_of(listener)}"
    listener.close()


def test_ipv6_literals_and_host_names_are_addresses() -> None:
    by_name = listen("localhost", "0")
    with socket.create_connection(("localhost", port_of(by_name)), timeout=5):
        pass
    by_name.close()
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        with pytest.raises(ListenError):  # a machine without IPv6 says so
            listen("::1", "0")
        return
    by_number = listen("::1", "0")
    assert by_number.address() == f"[::1]:{port_of(by_number)}"
    by_number.close()


@pytest.mark.parametrize("port", ["x-no-such-service", "-1", "1 1"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(ListenError):
        listen("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ListenError, match="assign"):
        listen("192.0.2.1", "0")


def test_a_unix_path_is_served_and_a_second_server_refused(short_directory: Path) -> None:
    listener = listen("unix:s", "ignored")
    assert listener.address() == "unix:s"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("s")
        accepted = listener.accept()
        assert accepted >= 0
        os.close(accepted)
    with pytest.raises(ListenError, match="another server"):
        listen("unix:s", "0")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("s")  # the refused one has not touched the path
    listener.close()


def test_a_live_unix_listener_with_a_full_queue_is_not_taken_for_stale(short_directory: Path) -> None:
    busy = socket.socket(socket.AF_UNIX)
    busy.bind("s")
    busy.listen(0)
    waiting = []
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        waiting.append(client)
        try:
            client.connect("s")
        except BlockingIOError:
            break
    with pytest.raises(ListenError, match="another server"):
        listen("unix:s", "0")
    for client in waiting:
        client.close()
    busy.close()


def test_a_stale_unix_path_is_taken_over(short_directory: Path) -> None:
    listen("unix:s", "0").close()
    assert os.path.exists("s")
    listener = listen("unix:s", "0")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("s")
    listener.close()


def test_a_file_that_is_no_socket_is_refused_and_kept(short_directory: Path) -> None:
    Path("s").write_text("precious")
    with pytest.raises(ListenError, match="not a socket"):
        listen("unix:s", "0")
    assert Path("s").read_text() == "precious"
    os.symlink("elsewhere", "l")
    with pytest.raises(ListenError, match="not a socket"):
        listen("unix:l", "0")


def test_a_unix_path_has_at_most_107_bytes(short_directory: Path) -> None:
    longest = "x" * UNIX_PATH_BYTES_MAX
    listen("unix:" + longest, "0").close()
    with pytest.raises(ListenError, match="longer"):
        listen("unix:" + longest + "x", "0")
    with pytest.raises(ListenError, match="longer"):
        listen("unix:" + "é" * 54, "0")


def test_a_unix_path_in_a_missing_directory_is_refused(short_directory: Path) -> None:
    with pytest.raises(ListenError, match="No such file"):
        listen("unix:nowhere/s", "0")


def test_an_empty_unix_path_is_beanstalkds_abstract_address() -> None:
    listener = listen("unix:", "0")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(b"\0" * 108)
    with pytest.raises(ListenError, match="in use"):
        listen("unix:", "0")
    assert listener.address() == "unix:@"
    listener.close()


def test_out_of_descriptors_is_told_apart_and_the_connection_waits() -> None:
    listener = listen("127.0.0.1", "0")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_connection(("127.0.0.1", port_of(listener)), timeout=5):
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            refused = listener.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert refused == ACCEPTED_NO_ROOM
        accepted = listener.accept()
        assert accepted >= 0
        os.close(accepted)
    listener.close()


def test_a_passed_listener_is_adopted_and_anything_else_refused() -> None:
    original = socket.create_server(("127.0.0.1", 0))
    listener = sockets.adopt(os.dup(original.fileno()))
    assert listener.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    assert not os.get_inheritable(listener.fileno())
    listener.close()
    original.close()
    not_listening = socket.socket()
    with pytest.raises(ListenError, match="not a listening stream"):
        sockets.adopt(not_listening.fileno())
    not_listening.close()
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with pytest.raises(ListenError, match="not a listening stream"):
        sockets.adopt(datagram.fileno())
    datagram.close()
    reading, writing = os.pipe()
    with pytest.raises(ListenError):
        sockets.adopt(reading)
    os.close(reading)
    os.close(writing)


def test_descriptors_passed_by_the_service_manager_are_only_taken_when_meant_for_this_process() -> None:
    own = str(os.getpid())
    assert sockets.inherited_descriptors({"LISTEN_PID": own, "LISTEN_FDS": "2"}) == [3, 4]
    assert sockets.inherited_descriptors({"LISTEN_PID": "1", "LISTEN_FDS": "2"}) == []
    assert sockets.inherited_descriptors({"LISTEN_PID": own, "LISTEN_FDS": "x"}) == []
    assert sockets.inherited_descriptors({}) == []


# ---------------------------------------------------------------- process


def test_descriptors_cross_a_channel_and_are_not_inheritable() -> None:
    one, other = socket.socketpair()
    reading, writing = os.pipe()
    assert process.send_descriptors(one, b"take this", [writing, reading]) == 9
    data, received = process.receive_descriptors(other, 100, 4)
    assert data == b"take this"
    assert len(received) == 2
    os.write(received[0], b"x")
    assert os.read(received[1], 10) == b"x"
    assert not any(os.get_inheritable(descriptor) for descriptor in received)
    for descriptor in (*received, reading, writing):
        os.close(descriptor)
    one.close()
    assert process.receive_descriptors(other, 100, 4) == (b"", [])
    other.close()


def test_more_descriptors_than_expected_are_closed_and_reported() -> None:
    one, other = socket.socketpair()
    before = len(os.listdir("/proc/self/fd"))
    process.send_descriptors(one, b"x", [0] * 9)
    with pytest.raises(process.DescriptorsLost):
        process.receive_descriptors(other, 100, 1)
    assert len(os.listdir("/proc/self/fd")) == before
    one.close()
    other.close()


def test_the_descriptor_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        assert process.raise_descriptor_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_notice_reaches_the_service_manager_and_its_absence_is_no_error(short_directory: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("n")
        path = os.path.abspath("n")
        if len(path) > UNIX_PATH_BYTES_MAX:
            path = f"/proc/self/cwd/{Path('n')}"
        assert process.notify_service_manager("READY=1", {"NOTIFY_SOCKET": path})
        assert manager.recv(100) == b"READY=1"
    assert not process.notify_service_manager("READY=1", {"NOTIFY_SOCKET": path})
    assert not process.notify_service_manager("READY=1", {})
    assert not process.notify_service_manager("READY=1", {"NOTIFY_SOCKET": "n"})


def test_the_watchdog_interval_is_for_the_process_that_it_names() -> None:
    own = str(os.getpid())
    assert process.watchdog_interval_ns({"WATCHDOG_USEC": "30", "WATCHDOG_PID": own}) == 30_000
    assert process.watchdog_interval_ns({"WATCHDOG_USEC": "30"}) == 30_000
    assert process.watchdog_interval_ns({"WATCHDOG_USEC": "30", "WATCHDOG_PID": "1"}) == 0
    assert process.watchdog_interval_ns({"WATCHDOG_USEC": "soon"}) == 0


CHILD_OF_A_SHORT_LIVED_PARENT = """
import os, signal, sys, time
from beanfield.io.process import die_with_parent
parent_lives, parent_ends = os.pipe()
ready, tell_ready = os.pipe()
middle = os.fork()
if middle == 0:
    own = os.getpid()
    if os.fork() == 0:
        die_with_parent(own)
        os.write(tell_ready, b"r")
        os.close(tell_ready)
        os.close(1)  # not this process's to keep open, but `parent_ends` below is
        signal.pause()
    os.read(ready, 1)
    os._exit(0)
os.close(parent_ends)
os.waitpid(middle, 0)
assert os.read(parent_lives, 1) == b""  # the end of file comes when the last holder, the grandchild, has ended
print("gone")
"""


def test_a_child_ends_with_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD_OF_A_SHORT_LIVED_PARENT], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (0, "gone\n"), done.stderr


def test_a_parent_that_has_ended_already_is_noticed() -> None:
    code = (
        "from beanfield.io.process import ParentGone, die_with_parent\n"
        "try:\n    die_with_parent(1 << 30)\n"
        "except ParentGone:\n    print('noticed')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, "noticed\n"), done.stderr


def test_a_library_for_titles_is_not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "setproctitle", None)
    process.set_title("beanfield: test")


def test_errors_of_one_connection_are_no_reason_to_stop_accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listen("127.0.0.1", "0")
    for number, result in (
        (errno.ECONNABORTED, ACCEPTED_NONE),
        (errno.EPERM, ACCEPTED_NONE),
        (errno.ENFILE, ACCEPTED_NO_ROOM),
        (errno.ENOBUFS, ACCEPTED_NO_ROOM),
    ):

        class Failing(socket.socket):
            def accept(self, number: int = number) -> tuple[socket.socket, object]:
                raise OSError(number, os.strerror(number))

        broken = Listener(Failing(fileno=os.dup(listener.fileno())))
        assert broken.accept() == result
        broken.close()
    listener.close()
