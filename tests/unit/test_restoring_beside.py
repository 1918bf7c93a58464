"""Jobs are restored beside the control socket: whoever asks meanwhile is told how far it is."""

import re
import socket
import sys
from pathlib import Path

from beanfield.control import Message
from beanfield.engine.job import READY, Job
from beanfield.io.beside import beside
from beanfield.io.control_socket import ControlSocket
from beanfield.io.slot_log import SlotLog
from beanfield.owner.core import OwnerConfig, OwnerCore
from beanfield.routing import Topology
from beanfield.wal.journal import MemoryJournal
from beanfield.wal.recovery import Recovery

JOBS = 200_000  # ten steps


def test_a_ping_is_answered_while_jobs_are_restored(tmp_path: Path) -> None:
    topology = Topology(1, 1)
    log = SlotLog("owner 0", str(tmp_path), 0, topology, 0, 1 << 20)
    recovery = Recovery(log.disk, 0, topology)
    recovery.replay.tube_names = [b"default"]
    for id in range(1, JOBS + 1):
        job = Job(id, 0, id, 0, 0, 60, b"x")
        job.state = READY
        recovery.replay.jobs[id] = job
    log._recovery = recovery
    core = OwnerCore(OwnerConfig(0, 1, bytes(16), topology, 0, 0, 1 << 40), MemoryJournal())
    log.restore_into(core.engine)
    ours, theirs = socket.socketpair()
    supervisor, child = ControlSocket(ours), ControlSocket(theirs)
    supervisor.send(Message("ping", {"number": 1}))
    told = []

    def progress() -> str:
        told.append(log.progress())
        supervisor.send(Message("ping", {"number": 1}))
        supervisor.receive()
        return told[-1]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # whoever waits for the lock is given it when the other lets go of it
    try:
        beside(child, log.restore, progress)
    finally:
        sys.setswitchinterval(before)
    counts = [int(match[1]) for text in told if (match := re.search(rf"restores its jobs, (\d+) of {JOBS}$", text))]
    assert any(0 < count < JOBS for count in counts), told[-5:]
    assert counts == sorted(counts)
    assert core.engine.counters.jobs_ready == JOBS
    supervisor.close()
    child.close()
    log.disk.close()
