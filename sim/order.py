"""Who gets which job, judged from inside: a better job that was there all the time, and holds that never end.

A reserve must not be given a job while a better one, by (priority, created_ns, id) over all slots, was there for it
from the moment it was said until it was answered. `steady` of a command is what was: ready, in a watched tube that is
not paused, held for nobody else, at every instant the Inspector saw. It is only judged where no hold comes near its
end (`Options.holds_are_short`), since an owner that is slow may be left out of the choice.
"""

from typing import TYPE_CHECKING, Any, Final

from beanfield.constants import HOLD_NS
from beanfield.engine.job import NOWHERE, READY, RESERVED
from sim.process import SimProcess
from sim.world import NS_PER_MS, Violation

if TYPE_CHECKING:
    from sim.client import Command, SimClient
    from sim.server import Server

HOLD_LATE_NS: Final = 20 * NS_PER_MS
JobKey = tuple[int, int, int]
HoldKey = tuple[int, int, int, int]  # job, frontend, session, request


def key_of(job: Any) -> JobKey:
    return int(job.priority()), int(job.created_ns), int(job.id)


class HoldWatch:
    """When each hold began, by its own clock: what an engine says of itself is not asked."""

    def __init__(self) -> None:
        self.since_ns: dict[int, dict[HoldKey, int]] = {}  # by slot

    def look(self, process: SimProcess) -> None:
        """After each turn of an owner."""
        slot, now_ns = process.index, process.world.now_ns
        before = self.since_ns.get(slot, {})
        found: dict[HoldKey, int] = {}
        engine = process.owner.engine
        for tube in engine.tubes.values():
            for job in tube.held.items:
                session = engine.holder_of(job)
                key = (int(job.id), int(session.gate.index), int(session.number), int(session.request))
                since_ns = found[key] = before.get(key, now_ns)
                late = now_ns - since_ns > HOLD_NS + HOLD_LATE_NS
                if late and not process.server.stopped_since(slot, since_ns):
                    raise Violation(
                        f"{process.title}: job {job.id} has been held for {(now_ns - since_ns) / 1e6:.0f} ms"
                    )
        self.since_ns[slot] = found

    def owner_ended(self, slot: int) -> None:
        self.since_ns.pop(slot, None)


class OrderWatch:
    """Judges RESERVED."""

    def __init__(self, server: "Server") -> None:
        self.server = server

    def said(self, client: "SimClient", command: "Command") -> None:
        """A reserve is sent: what is there for it now."""
        for process in self.server.owners:
            if process is None or process.owner is None:
                return
            engine = process.owner.engine
            for name in command.watched:
                tube = engine.tubes.get(name)
                if tube is not None and tube.pause_until_ns == 0:
                    for job in tube.ready.items:
                        command.steady[int(job.id)] = key_of(job)

    def seen(self, client: "SimClient", command: "Command", process: SimProcess) -> None:
        """An owner has executed a frame, or a turn: what is still there."""
        engine = process.owner.engine
        topology = self.server.topology
        for id_ in list(command.steady):
            if topology.slot_of_id(id_) == process.index and not self._is_there(engine, id_, client, process.index):
                del command.steady[id_]

    def _is_there(self, engine: Any, id_: int, client: "SimClient", slot: int) -> bool:
        job = engine.jobs.find(id_)
        if job is None or job.state != READY or engine.tube_of(job).pause_until_ns != 0:
            return False
        return job.holder == NOWHERE or self._is_of(engine.holder_of(job), client, slot)

    def _is_of(self, session: Any, client: "SimClient", slot: int) -> bool:
        """Whether an owner's session is this client's."""
        process = client.process
        if process is None or process.core is None or process.index != session.gate.index or client.handle < 0:
            return False
        own = process.core.clients[client.handle]
        return own is not None and any(seat.link.slot == slot and seat.number == session.number for seat in own.seats)

    def answered(self, client: "SimClient", command: "Command") -> None:
        if not command.steady or command.reply_word != b"RESERVED" or not command.verb.startswith("reserve"):
            return
        id_ = int(command.reply_args[0])
        process = self.server.owners[int(self.server.topology.slot_of_id(id_))]
        job = None if process is None or process.owner is None else process.owner.engine.jobs.find(id_)
        if job is None or job.state != RESERVED:
            return  # over already: what it was when it was given is not known any more
        better = min(command.steady.values())
        if better < key_of(job):
            raise Violation(f"{client.name}: got job {key_of(job)} while {better} was there for it all the time")
