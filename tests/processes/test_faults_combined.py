"""`--frontends 0`: one process is owner and frontend. What a fault of it does, under load."""

import os
import signal

from tests.processes.load import Load
from tests.processes.server import Server, is_running, wait_for
from tests.processes.test_faults_under_load import AFTER, BEFORE, PATIENT, SHORT_STOP, replaced


def loaded(server: Server) -> Load:
    return Load(server, slots=1, frontends=0)


def test_a_killed_process_comes_back_and_goes_on_with_its_ids() -> None:
    with Server(slots=1, frontends=0, extra=PATIENT) as server, loaded(server) as load:
        load.run_for(BEFORE)
        old = server.child("owner", 0)
        # Its clients lose their connections as with a frontend, and their jobs as with an owner.
        load.frontend_ended(0, old.pid)
        load.owner_ended(0)
        server.kill("owner", 0)
        replaced(server, "owner", 0, old.pid)
        server.wait_for_log("owner 0 serves again")
        load.mark(0)
        load.progress()
        load.settle()
        load.check()


def test_a_process_stopped_past_the_hang_timeout_is_replaced() -> None:
    with Server(slots=1, frontends=0, extra=[*PATIENT, "--hang-timeout", "3"]) as server, loaded(server) as load:
        load.run_for(BEFORE)
        old = server.child("owner", 0)
        load.frontend_ended(0, old.pid)
        load.owner_ended(0)
        os.kill(old.pid, signal.SIGSTOP)
        server.wait_for_log("owner 0 has not answered for 3 s: killed")
        replaced(server, "owner", 0, old.pid)
        server.wait_for_log("owner 0 serves again")
        load.mark(0)
        load.progress()
        load.settle()
        load.check()


def test_a_process_stopped_for_less_goes_on_as_if_nothing_had_been() -> None:
    with Server(slots=1, frontends=0, extra=PATIENT) as server, loaded(server) as load:
        load.run_for(BEFORE)
        pid = server.signal("owner", 0, signal.SIGSTOP)
        load.run_for(SHORT_STOP)
        os.kill(pid, signal.SIGCONT)
        load.progress()
        load.run_for(AFTER)
        load.settle()
        load.check()
        assert server.child("owner", 0).pid == pid
        assert load.ledger.ended == []


def test_a_killed_supervisor_takes_its_only_child_with_it() -> None:
    with Server(slots=1, frontends=0) as server:
        pid = server.child("owner", 0).pid
        with loaded(server) as load:
            load.run_for(BEFORE)
            load.stopping.set()
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            wait_for(lambda: not is_running(pid), "the end of the child", 5.0)
        server.assert_no_orphan()
