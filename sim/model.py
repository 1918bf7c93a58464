"""A deliberately dumb queue server: lists, linear scans, one command at a time. What it says is what must be said.

For sequential use only: one command is executed and answered before the next is sent, whoever sends it. Times are
exact; the caller keeps its commands away from the instants at which something happens by itself (`instants`), so that
the latency of the simulated server does not matter.
"""

from typing import Final

from sim.client import Command
from sim.world import NS_PER_S

READY: Final = "ready"
RESERVED: Final = "reserved"
DELAYED: Final = "delayed"
BURIED: Final = "buried"
Reply = tuple[list[bytes], bytes]  # words, body
MARGIN_NS: Final = NS_PER_S


class Job:
    def __init__(self, id_: int, tube: bytes, command: Command) -> None:
        self.id = id_
        self.tube = tube
        self.body = command.body
        self.priority = command.priority
        self.delay_s = command.delay_s
        self.ttr_s = command.ttr_s
        self.state = READY
        self.holder = ""
        self.until_ns = 0
        self.age = 0
        self.counts = {"reserves": 0, "timeouts": 0, "releases": 0, "buries": 0, "kicks": 0}


class Tube:
    def __init__(self, age: int) -> None:
        self.age = age
        self.pause_until_ns = 0
        self.pause_s = 0
        self.total_jobs = 0
        self.deletes = 0
        self.pauses = 0


class Connection:
    def __init__(self) -> None:
        self.used = b"default"
        self.watched = [b"default"]


class DumbServer:
    """All of a server's state, in lists."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.age = 0
        self.burials = 0
        self.tubes: dict[bytes, Tube] = {b"default": Tube(0)}
        self.jobs: list[Job] = []
        self.connections: dict[str, Connection] = {}

    # ---------------------------------------------------------------- time
    def instants(self) -> list[int]:
        """When something will happen by itself; a margin's begin counts."""
        found = []
        for job in self.jobs:
            if job.state in (DELAYED, RESERVED):
                found.append(job.until_ns)
            if job.state == RESERVED:
                found.append(job.until_ns - MARGIN_NS)
        found.extend(tube.pause_until_ns for tube in self.tubes.values() if tube.pause_until_ns)
        return sorted(found)

    def advance(self, now_ns: int) -> None:
        self.now_ns = now_ns
        for job in self.jobs:
            if job.state == DELAYED and job.until_ns <= now_ns:
                job.state = READY
            if job.state == RESERVED and job.until_ns <= now_ns:
                job.state = READY
                job.holder = ""
                job.counts["timeouts"] += 1
        for tube in self.tubes.values():
            if tube.pause_until_ns <= now_ns:
                tube.pause_until_ns = 0

    # ---------------------------------------------------------------- connections and tubes
    def connect(self, name: str) -> None:
        self.connections[name] = Connection()

    def disconnect(self, name: str) -> None:
        for job in self.jobs:
            if job.holder == name:
                job.state, job.holder = READY, ""
        del self.connections[name]
        self._forget_tubes()

    def _tube(self, name: bytes) -> Tube:
        if name not in self.tubes:
            self.age += 1
            self.tubes[name] = Tube(self.age)
        return self.tubes[name]

    def _forget_tubes(self) -> None:
        kept = {b"default"}
        for connection in self.connections.values():
            kept.add(connection.used)
            kept.update(connection.watched)
        kept.update(job.tube for job in self.jobs)
        self.tubes = {name: tube for name, tube in self.tubes.items() if name in kept}

    # ---------------------------------------------------------------- commands
    def execute(self, name: str, command: Command, now_ns: int) -> Reply:
        """The reply; for put with id 0. Not for reserve."""
        self.advance(now_ns)
        connection = self.connections[name]
        method = getattr(self, "_" + command.verb.replace("-", "_"))
        reply: Reply = method(name, connection, command)
        self._forget_tubes()
        return reply

    def put_done(self, name: str, command: Command, id_: int) -> None:
        """A put was answered INSERTED with this id."""
        connection = self.connections[name]
        job = Job(id_, connection.used, command)
        self.age += 1
        job.age = self.age
        if job.delay_s:
            job.state, job.until_ns = DELAYED, self.now_ns + job.delay_s * NS_PER_S
        self.jobs.append(job)
        self._tube(job.tube).total_jobs += 1

    def _use(self, name: str, connection: Connection, command: Command) -> Reply:
        self._tube(command.tube)
        connection.used = command.tube
        return [b"USING", command.tube], b""

    def _watch(self, name: str, connection: Connection, command: Command) -> Reply:
        self._tube(command.tube)
        if command.tube not in connection.watched:
            connection.watched.append(command.tube)
        return [b"WATCHING", b"%d" % len(connection.watched)], b""

    def _ignore(self, name: str, connection: Connection, command: Command) -> Reply:
        if connection.watched == [command.tube]:
            return [b"NOT_IGNORED"], b""
        if command.tube in connection.watched:
            connection.watched.remove(command.tube)
        return [b"WATCHING", b"%d" % len(connection.watched)], b""

    def _find(self, id_: int) -> Job | None:
        for job in self.jobs:
            if job.id == id_:
                return job
        return None

    def _own(self, name: str, id_: int) -> Job | None:
        job = self._find(id_)
        return job if job is not None and job.state == RESERVED and job.holder == name else None

    def _delete(self, name: str, connection: Connection, command: Command) -> Reply:
        job = self._find(command.id)
        if job is None or job.state == RESERVED and job.holder != name:
            return [b"NOT_FOUND"], b""
        self.jobs.remove(job)
        self.tubes[job.tube].deletes += 1
        return [b"DELETED"], b""

    def _release(self, name: str, connection: Connection, command: Command) -> Reply:
        job = self._own(name, command.id)
        if job is None:
            return [b"NOT_FOUND"], b""
        job.priority, job.delay_s, job.holder = command.priority, command.delay_s, ""
        job.counts["releases"] += 1
        job.state = DELAYED if job.delay_s else READY
        job.until_ns = self.now_ns + job.delay_s * NS_PER_S
        return [b"RELEASED"], b""

    def _bury(self, name: str, connection: Connection, command: Command) -> Reply:
        job = self._own(name, command.id)
        if job is None:
            return [b"NOT_FOUND"], b""
        self.burials += 1
        job.priority, job.state, job.holder, job.until_ns = command.priority, BURIED, "", self.burials
        job.counts["buries"] += 1
        return [b"BURIED"], b""

    def _touch(self, name: str, connection: Connection, command: Command) -> Reply:
        job = self._own(name, command.id)
        if job is None:
            return [b"NOT_FOUND"], b""
        job.until_ns = self.now_ns + job.ttr_s * NS_PER_S
        return [b"TOUCHED"], b""

    def _kick(self, name: str, connection: Connection, command: Command) -> Reply:
        here = [job for job in self.jobs if job.tube == connection.used]
        kicked = [job for job in here if job.state == BURIED] or [job for job in here if job.state == DELAYED]
        kicked.sort(key=lambda job: (job.until_ns, job.id))
        for job in kicked[: command.number]:
            job.state = READY
            job.counts["kicks"] += 1
        return [b"KICKED", b"%d" % len(kicked[: command.number])], b""

    def _kick_job(self, name: str, connection: Connection, command: Command) -> Reply:
        job = self._find(command.id)
        if job is None or job.state not in (BURIED, DELAYED):
            return [b"NOT_FOUND"], b""
        job.state = READY
        job.counts["kicks"] += 1
        return [b"KICKED"], b""

    def _reserve_job(self, name: str, connection: Connection, command: Command) -> Reply:
        job = self._find(command.id)
        if job is None or job.state == RESERVED:
            return [b"NOT_FOUND"], b""
        return self._reserved(name, job)

    def _reserved(self, name: str, job: Job) -> Reply:
        job.state, job.holder, job.until_ns = RESERVED, name, self.now_ns + job.ttr_s * NS_PER_S
        job.counts["reserves"] += 1
        return [b"RESERVED", b"%d" % job.id, b"%d" % len(job.body)], job.body

    def _found(self, job: Job | None) -> Reply:
        if job is None:
            return [b"NOT_FOUND"], b""
        return [b"FOUND", b"%d" % job.id, b"%d" % len(job.body)], job.body

    def _peek(self, name: str, connection: Connection, command: Command) -> Reply:
        return self._found(self._find(command.id))

    def _first(self, tube: bytes, state: str) -> Job | None:
        jobs = [job for job in self.jobs if job.tube == tube and job.state == state]
        key = (lambda job: (job.priority, job.id)) if state == READY else (lambda job: (job.until_ns, job.id))
        return min(jobs, key=key, default=None)

    def _peek_ready(self, name: str, connection: Connection, command: Command) -> Reply:
        return self._found(self._first(connection.used, READY))

    def _peek_delayed(self, name: str, connection: Connection, command: Command) -> Reply:
        return self._found(self._first(connection.used, DELAYED))

    def _peek_buried(self, name: str, connection: Connection, command: Command) -> Reply:
        return self._found(self._first(connection.used, BURIED))

    def _pause_tube(self, name: str, connection: Connection, command: Command) -> Reply:
        tube = self.tubes.get(command.tube)
        if tube is None:
            return [b"NOT_FOUND"], b""
        tube.pause_s = command.delay_s
        tube.pause_until_ns = self.now_ns + command.delay_s * NS_PER_S if command.delay_s else 0
        tube.pauses += 1
        return [b"PAUSED"], b""

    def _list_tube_used(self, name: str, connection: Connection, command: Command) -> Reply:
        return [b"USING", connection.used], b""

    def _list_tubes(self, name: str, connection: Connection, command: Command) -> Reply:
        names = sorted(self.tubes, key=lambda each: self.tubes[each].age)
        return self._list(names)

    def _list_tubes_watched(self, name: str, connection: Connection, command: Command) -> Reply:
        return self._list(connection.watched)

    def _list(self, names: list[bytes]) -> Reply:
        text = b"---\n" + b"".join(b"- %s\n" % name for name in names)
        return [b"OK", b"%d" % len(text)], text

    # ---------------------------------------------------------------- statistics: what must stand in them
    def _stats_job(self, name: str, connection: Connection, command: Command) -> Reply:
        job = self._find(command.id)
        if job is None:
            return [b"NOT_FOUND"], b""
        shown = {"id": job.id, "tube": f'"{job.tube.decode()}"', "state": job.state, "pri": job.priority,
                 "delay": job.delay_s, "ttr": job.ttr_s, **job.counts}  # fmt: skip
        return [b"OK"], _lines(shown)

    def _stats_tube(self, name: str, connection: Connection, command: Command) -> Reply:
        tube = self.tubes.get(command.tube)
        if tube is None:
            return [b"NOT_FOUND"], b""
        here = [job for job in self.jobs if job.tube == command.tube]
        shown: dict[str, object] = {
            "name": f'"{command.tube.decode()}"',
            "current-jobs-urgent": sum(job.state == READY and job.priority < 1_024 for job in here),
            "total-jobs": tube.total_jobs,
            "current-using": sum(each.used == command.tube for each in self.connections.values()),
            "current-watching": sum(command.tube in each.watched for each in self.connections.values()),
            "cmd-delete": tube.deletes,
            "cmd-pause-tube": tube.pauses,
        }
        for state in (READY, RESERVED, DELAYED, BURIED):
            shown[f"current-jobs-{state}"] = sum(job.state == state for job in here)
        return [b"OK"], _lines(shown)

    def _stats(self, name: str, connection: Connection, command: Command) -> Reply:
        shown: dict[str, object] = {"current-tubes": len(self.tubes), "current-connections": len(self.connections)}
        for state in (READY, RESERVED, DELAYED, BURIED):
            shown[f"current-jobs-{state}"] = sum(job.state == state for job in self.jobs)
        return [b"OK"], _lines(shown)

    # ---------------------------------------------------------------- reserve, alone in the world
    def reserve(self, name: str, timeout_ns: int, now_ns: int) -> tuple[Reply, int]:
        """The reply and when it is due; all others are silent until then. timeout_ns < 0: there must be an end."""
        self.advance(now_ns)
        end_ns = now_ns + timeout_ns if timeout_ns >= 0 else -1
        while True:
            job = self._best(self.connections[name].watched)
            if job is not None:
                return self._reserved(name, job), self.now_ns
            own = [each.until_ns for each in self.jobs if each.state == RESERVED and each.holder == name]
            if own and self.now_ns >= min(own) - MARGIN_NS:
                return ([b"DEADLINE_SOON"], b""), self.now_ns
            if 0 <= end_ns <= self.now_ns:
                return ([b"TIMED_OUT"], b""), self.now_ns
            instants = [at_ns for at_ns in self.instants() if at_ns > self.now_ns]
            if end_ns >= 0:
                instants.append(end_ns)
            self.advance(min(instants))

    def _best(self, watched: list[bytes]) -> Job | None:
        able = [
            job
            for job in self.jobs
            if job.state == READY and job.tube in watched and not self.tubes[job.tube].pause_until_ns
        ]
        return min(able, key=lambda job: (job.priority, job.age), default=None)


def _lines(shown: dict[str, object]) -> bytes:
    return b"".join(f"{key}: {value}\n".encode() for key, value in shown.items())
