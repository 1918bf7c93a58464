"""Each row of the table of failures, on real processes under load; afterwards the ledger is held against the server.

What holds after every fault (Load.check): no reservation held twice, none held by nobody, references and counters
exact, no job lost but those of a dead owner, no connection ended that the fault did not concern. That no process is
left over is checked by the end of each Server.
"""

import os
import random
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.links import cut_link, frontend_end, link_end
from tests.processes.load import Load
from tests.processes.server import ChildSeen, Server, is_running, program_environment, wait_for
from tests.processes.test_supervision import FAILING_TITLES

BEFORE = 0.4  # seconds of load before a fault
AFTER = 0.3  # and after everything is back
SHORT_STOP = 1.0  # well below the hang timeout of 10 s
# A busy machine may take longer to start a process than the default of 10 s.
PATIENT = ["--slot-wait", "60"]


def loaded(server: Server, frontends: int = 2) -> Load:
    return Load(server, slots=2, frontends=frontends)


def replaced(server: Server, role: str, index: int, old: int) -> ChildSeen:
    """The next generation of a child, with its title."""

    def new() -> ChildSeen | None:
        return next((c for c in server.children(role) if c.index == index and c.pid != old), None)

    return wait_for(new, f"a new {role} {index}", 30.0)


def test_a_killed_owner_takes_only_its_own_jobs_with_it() -> None:
    with Server(slots=2, frontends=2, extra=PATIENT) as server, loaded(server) as load:
        load.run_for(BEFORE)
        load.owner_ended(1)
        old = server.kill("owner", 1)
        replaced(server, "owner", 1, old)
        server.wait_for_log("owner 1 serves again")
        load.mark(1)
        load.progress()
        load.settle()
        load.check()


def test_a_killed_frontend_gives_back_all_that_its_clients_had() -> None:
    with Server(slots=2, frontends=2, extra=PATIENT) as server, loaded(server) as load:
        load.run_for(BEFORE)
        old = server.child("frontend", 0)
        load.frontend_ended(0, old.pid)
        server.kill("frontend", 0)
        replaced(server, "frontend", 0, old.pid)
        load.progress()
        load.settle()
        load.check()


def test_a_killed_supervisor_takes_everything_with_it_and_leaves_the_port_free() -> None:
    with Server(slots=2, frontends=2) as server:
        pids = [child.pid for child in server.children()]
        with loaded(server) as load:
            load.run_for(BEFORE)
            load.stopping.set()
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            wait_for(lambda: not any(is_running(pid) for pid in pids), "the end of the children", 5.0)
        server.assert_no_orphan()
        assert not isinstance(server.address, str)
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(server.address)


@pytest.mark.parametrize("role", ["owner", "frontend"])
def test_a_process_that_hangs_under_load_is_replaced(role: str) -> None:
    with Server(slots=2, frontends=2, extra=[*PATIENT, "--hang-timeout", "3"]) as server, loaded(server) as load:
        load.run_for(BEFORE)
        old = server.child(role, 1)
        if role == "owner":
            load.owner_ended(1)
        else:
            load.frontend_ended(1, old.pid)
        os.kill(old.pid, signal.SIGSTOP)
        server.wait_for_log(f"{role} 1 has not answered for 3 s: killed")
        replaced(server, role, 1, old.pid)
        if role == "owner":
            server.wait_for_log("owner 1 serves again")
            load.mark(1)
        load.progress()
        load.settle()
        load.check()


def test_processes_stopped_for_less_than_the_hang_timeout_go_on_as_if_nothing_had_been() -> None:
    with Server(slots=2, frontends=2, extra=PATIENT) as server, loaded(server) as load:
        children = server.children()
        for pid in (server.child("owner", 0).pid, server.child("frontend", 1).pid, server.pid):
            load.run_for(BEFORE)
            os.kill(pid, signal.SIGSTOP)
            load.run_for(SHORT_STOP)
            os.kill(pid, signal.SIGCONT)
            load.progress()
        load.settle()
        load.check()
        assert server.children() == children
        assert load.ledger.ended == []


def test_a_link_cut_alone_ends_only_what_went_through_it_and_is_made_again() -> None:
    with Server(slots=2, frontends=2, extra=PATIENT) as server, loaded(server) as load:
        children = server.children()
        for slot, frontend in ((1, 0), (0, 1)):
            load.run_for(BEFORE)
            load.link_cut(slot, frontend)
            cut_link(server, slot, frontend)
            server.wait_for_log(f"link of owner {slot} and frontend {frontend} is made again")
            load.progress()
        load.settle()
        load.check()
        assert server.children() == children


@pytest.mark.parametrize("reach", [link_end, frontend_end], ids=["to-the-frontend", "to-the-owner"])
def test_garbage_on_a_link_ends_that_link_alone(reach: Callable[[Server, int, int], socket.socket]) -> None:
    with Server(slots=2, frontends=2, extra=PATIENT) as server, loaded(server) as load:
        children = server.children()
        load.run_for(BEFORE)
        load.link_cut(1, 0)
        with reach(server, 1, 0) as end:
            # Enough for several frames' lengths, so that whatever frame is under way ends and garbage begins.
            end.setblocking(False)
            end.send(random.Random(3).randbytes(100_000))
        server.wait_for_log("link of owner 1 and frontend 0 is made again")
        load.progress()
        load.settle()
        # Garbage may have ended in the middle of a frame of a session: its words are not to be believed, so only what
        # concerns the whole is looked at.
        assert server.children() == children
        with server.connect() as client:
            assert client.put(b"x").startswith(b"INSERTED ")


def test_a_slot_that_cannot_start_is_reported_and_the_others_serve_under_load(tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    (tmp_path / "setproctitle.py").write_text(FAILING_TITLES.format(flag=str(flag)))
    path = f"{tmp_path}:{program_environment()['PYTHONPATH']}"
    with Server(slots=2, frontends=2, extra=PATIENT, environment={"PYTHONPATH": path}) as server:
        with loaded(server) as load:
            load.run_for(BEFORE)
            flag.touch()
            load.owner_ended(1)
            load.unavailable.add(1)
            server.kill("owner", 1)
            server.wait_for_log("owner 1 ended with exit code 65")
            load.progress()
            flag.unlink()
            server.wait_for_log("owner 1 serves again")
            load.mark(1)
            load.run_for(AFTER)
            load.settle()
            load.unavailable.clear()
            load.check()


def test_a_slot_that_crashes_five_times_is_unavailable_and_the_others_serve_under_load() -> None:
    with Server(slots=2, frontends=2, extra=PATIENT) as server, loaded(server) as load:
        load.owner_ended(1)
        load.unavailable.add(1)
        pid = server.kill("owner", 1)
        for _ in range(4):
            load.progress(20)
            pid = replaced(server, "owner", 1, pid).pid
            os.kill(pid, signal.SIGKILL)
        server.wait_for_log("slot 1 is unavailable")
        load.progress()
        load.settle()
        load.check()


def test_a_frontend_that_crashes_five_times_stays_out_and_the_others_serve() -> None:
    with Server(slots=1, frontends=2) as server:
        pid = server.kill("frontend", 0)
        for _ in range(4):
            pid = replaced(server, "frontend", 0, pid).pid
            os.kill(pid, signal.SIGKILL)
        server.wait_for_log("frontend 0 stays out")
        with server.connect() as client:
            assert client.put(b"x") == b"INSERTED 1"
            assert client.stats()["frontends-available"] == "1"


def test_the_server_ends_when_no_frontend_is_left() -> None:
    with Server(slots=1, frontends=1) as server:
        pid = server.kill("frontend", 0)
        for _ in range(4):
            pid = replaced(server, "frontend", 0, pid).pid
            os.kill(pid, signal.SIGKILL)
        assert server.wait() == 1
        assert "no frontend is left: the server ends" in server.log()
        server.assert_no_orphan()


def test_a_storm_of_kills_and_cuts_leaves_everything_in_order() -> None:
    pick = random.Random(11)
    with Server(slots=2, frontends=2, extra=PATIENT) as server, loaded(server) as load:
        kills = [("owner", 0), ("owner", 1), ("frontend", 0), ("frontend", 1)] * 2
        pick.shuffle(kills)
        for role, index in kills:
            load.progress(30)
            child = server.child(role, index)
            if role == "owner":
                load.owner_ended(index)
            else:
                load.frontend_ended(index, child.pid)
            os.kill(child.pid, signal.SIGKILL)
            replaced(server, role, index, child.pid)
            slot, frontend = pick.randrange(2), pick.randrange(2)
            load.link_cut(slot, frontend)
            cut_link(server, slot, frontend)
        for slot in range(2):
            load.mark(slot)
        load.progress()
        load.settle()
        load.check()
