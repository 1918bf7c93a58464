"""A deliberately dumb queue: one list of jobs, linear searches, no heaps. What the engine is compared with."""

from dataclasses import dataclass, field

SECOND = 1_000_000_000


@dataclass
class ModelJob:
    id: int
    tube: bytes
    priority: int
    delay_s: int
    ttr_s: int
    body: bytes
    created_ns: int
    state: str = "ready"
    until_ns: int = 0
    holder: int = 0
    burial: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict(reserves=0, timeouts=0, releases=0, buries=0, kicks=0))

    def key(self) -> tuple[int, int, int]:
        return self.priority, self.created_ns, self.id


@dataclass
class ModelSession:
    number: int
    used: bytes
    watched: list[bytes]
    waiting: bool = False
    arrival: int = 0


class Model:
    """The same commands as the engine, one owner, all reserves of one owner."""

    def __init__(self) -> None:
        self.jobs: list[ModelJob] = []
        self.sessions: dict[int, ModelSession] = {}
        self.paused: dict[bytes, int] = {}
        self.granted: list[tuple[int, int]] = []
        self.expired: list[tuple[int, int]] = []
        self.arrivals = 0
        self.burials = 0

    def find(self, id: int) -> ModelJob | None:
        return next((job for job in self.jobs if job.id == id), None)

    def exists(self, tube: bytes) -> bool:
        used = any(s.used == tube or tube in s.watched for s in self.sessions.values())
        return tube == b"default" or used or any(job.tube == tube for job in self.jobs)

    def forget_pauses(self) -> None:
        self.paused = {tube: until for tube, until in self.paused.items() if self.exists(tube)}

    def best(self, session: ModelSession) -> ModelJob | None:
        ready = [j for j in self.jobs if j.state == "ready" and j.tube in session.watched and j.tube not in self.paused]
        return min(ready, key=ModelJob.key) if ready else None

    def serve(self, now_ns: int) -> None:
        """Until no job and waiter match. Which match is made first is decided by arrival of the waiter."""
        while True:
            waiting = sorted((s for s in self.sessions.values() if s.waiting), key=lambda s: s.arrival)
            for session in waiting:
                job = self.best(session)
                if job is not None:
                    session.waiting = False
                    self.reserve_job(session, job, now_ns)
                    self.granted.append((session.number, job.id))
                    break
            else:
                return

    def reserve_job(self, session: ModelSession, job: ModelJob, now_ns: int) -> None:
        job.state = "reserved"
        job.holder = session.number
        job.until_ns = now_ns + job.ttr_s * SECOND
        job.counts["reserves"] += 1

    def enter(self, job: ModelJob, delay_s: int, now_ns: int) -> None:
        job.holder = 0
        job.state = "delayed" if delay_s else "ready"
        job.until_ns = now_ns + delay_s * SECOND if delay_s else 0

    def advance(self, now_ns: int) -> None:
        """Delays, then pauses, then TTRs, each in the order of their ends."""
        for job in sorted((j for j in self.jobs if j.state == "delayed"), key=lambda j: (j.until_ns, j.id)):
            if job.until_ns <= now_ns:
                job.state = "ready"
                self.serve(now_ns)
        for tube, until in sorted(self.paused.items(), key=lambda item: item[1]):
            if until <= now_ns:
                del self.paused[tube]
                self.serve(now_ns)
        while True:
            due = [j for j in self.jobs if j.state == "reserved" and j.until_ns <= now_ns]
            if not due:
                return
            job = min(due, key=lambda j: (j.until_ns, j.id))
            self.expired.append((job.holder, job.id))
            job.state = "ready"
            job.holder = 0
            job.counts["timeouts"] += 1
            self.serve(now_ns)
