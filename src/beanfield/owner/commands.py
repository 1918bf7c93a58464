"""What each frame of a session does at its owner: from decoded fields to engine calls and answers.

Rules: a client's fault is a reply; a frame that a correct frontend cannot have sent is a LinkFault, raised before
anything has changed. A command that must wait (for SYNC, or a kick over several turns) blocks its session; the frames
behind it are set aside in order.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import JOB_BYTES_CEILING, NS_PER_S, STREAM_COMMANDS_MAX, U32_MAX
from beanfield.engine.engine import DONE_ENDED, NOT_FOUND, Engine
from beanfield.engine.job import BURIED, DELAYED
from beanfield.engine.session import NO_REQUEST
from beanfield.engine.tube import Tube
from beanfield.ipc import frames
from beanfield.owner.kick import KickTask
from beanfield.owner.link import OwnerLink
from beanfield.owner.looks import Looks, check_name, fault
from beanfield.owner.seat import Deferred, Seat
from beanfield.proto import replies
from beanfield.wal.journal import Journal

SECOND: Final[i64] = NS_PER_S
# A long kick moves this many jobs in a turn, so that it shares turns with others.
KICK_SLICE_JOBS: Final[i64] = 250
# Streamed commands, and what may end them.
BACKLOG_FRAMES_MAX: Final = STREAM_COMMANDS_MAX + 8
NUMBER_MAX: Final[i64] = U32_MAX


@mypyc_attr(native_class=True)
class Commands(Looks):
    """Looks, and the commands that change something."""

    def __init__(self, engine: Engine, journal: Journal, memory_bytes_max: i64) -> None:
        super().__init__(engine)
        self.journal: Journal = journal
        self.memory_bytes_max: i64 = memory_bytes_max
        self.memory_elsewhere_bytes: i64 = 0  # what the jobs of all other owners cost; the loop tells each turn
        self.kicks: list[KickTask] = []
        self.log: list[str] = []

    # ---------------------------------------------------------------- one frame

    def execute(
        self, link: OwnerLink, seat: Seat, opcode: i64, flags: i64, request: i64,
        a: i64, b: i64, c: i64, body: bytes, now_ns: i64,
    ) -> None:
        """A frame of an open session that is not blocked. The commonest first."""
        if opcode == frames.PUT:
            self._put(link, seat, request, a, b, c, body, now_ns)
        elif opcode == frames.RESERVE:
            self._reserve(link, seat, flags, request, now_ns)
        elif opcode == frames.DELETE:
            self._delete(link, seat, request, a, now_ns)
        elif opcode == frames.RESERVE_RUN:
            self._reserve_run(link, seat, request, a, now_ns)
        elif opcode <= frames.LAST:
            self._execute_session(link, seat, opcode, flags, request, a, b, c, body, now_ns)
        elif opcode <= frames.KICK_JOB:
            self._execute_job(link, seat, opcode, request, a, b, c, now_ns)
        elif opcode == frames.PAUSE_TUBE:
            self._pause_tube(link, seat, request, a, body, now_ns)
        else:
            self.look(link, seat, opcode, request, a, body, now_ns)

    def _execute_session(
        self, link: OwnerLink, seat: Seat, opcode: i64, flags: i64, request: i64,
        a: i64, b: i64, c: i64, body: bytes, now_ns: i64,
    ) -> None:
        engine = self.engine
        if opcode == frames.ASK:
            self._check_reserve(seat)
            if self.holds_synced(link, seat, opcode, flags, request, 0, now_ns):
                return
            engine.ask(seat, request, flags == frames.FLAG_NOWAIT, now_ns)
        elif opcode == frames.TAKE:
            if seat.request == request:
                if not seat.multi:
                    raise fault("TAKE for a reserve of one owner")
                engine.take(seat, a, b, c, now_ns)
        elif opcode == frames.DROP:
            if seat.request == request:
                engine.drop(seat, now_ns)
        elif opcode == frames.LAST:
            if seat.request == request:
                self._last(link, seat, now_ns)
        elif opcode == frames.PUT_PART:
            self._put_part(seat, a, body)
        elif opcode == frames.USE:
            check_name(engine, body)
            engine.use(seat, body, now_ns)
            link.reply(seat.number, request, 0, b"")
        elif opcode == frames.UNUSE:
            engine.unuse(seat)
            link.reply(seat.number, request, 0, b"")
        else:
            check_name(engine, body)
            if seat.request != NO_REQUEST:
                raise fault("watch list changed while a reserve is under way")
            if opcode == frames.WATCH:
                engine.watch(seat, body, now_ns)
            else:
                engine.ignore(seat, body)
            link.reply(seat.number, request, 0, b"")

    def _execute_job(
        self, link: OwnerLink, seat: Seat, opcode: i64, request: i64, a: i64, b: i64, c: i64, now_ns: i64
    ) -> None:
        if opcode == frames.RELEASE:
            self._release(link, seat, request, a, b, c, now_ns)
        elif opcode == frames.BURY:
            self._bury(link, seat, request, a, b, now_ns)
        elif opcode == frames.TOUCH:
            self._touch(link, seat, request, a, now_ns)
        elif opcode == frames.RESERVE_JOB:
            self._reserve_job(link, seat, request, a, now_ns)
        elif opcode == frames.KICK:
            self._kick(link, seat, request, a, now_ns)
        else:
            self._kick_job(link, seat, request, a, now_ns)

    # ---------------------------------------------------------------- put

    def _put_part(self, seat: Seat, body_bytes: i64, piece: bytes) -> None:
        if body_bytes > JOB_BYTES_CEILING or seat.pieces_bytes + len(piece) > body_bytes:
            raise fault("a body in pieces is longer than announced")
        seat.pieces.append(piece)
        seat.pieces_bytes += len(piece)

    def _put(
        self, link: OwnerLink, seat: Seat, request: i64,
        priority: i64, delay_ns: i64, ttr_ns: i64, body: bytes, now_ns: i64,
    ) -> None:
        tube = seat.used
        if tube is None:
            raise fault("put without a used tube in this slot")
        delay_s = delay_ns // SECOND
        ttr_s = ttr_ns // SECOND
        check_number(priority)
        check_number(delay_s)
        check_number(ttr_s)
        if ttr_s == 0:
            raise fault("a TTR of less than a second")
        if len(seat.pieces) != 0:
            seat.pieces.append(body)
            body = b"".join(seat.pieces)
            seat.pieces = []
            seat.pieces_bytes = 0
        engine = self.engine
        if engine.counters.memory_bytes + self.memory_elsewhere_bytes > self.memory_bytes_max:
            link.reply(seat.number, request, 0, replies.OUT_OF_MEMORY)
            return
        id = engine.next_id(tube)
        if id < 0:
            self.log.append("put refused: the job ids of this slot are used up")
            link.reply(seat.number, request, 0, replies.INTERNAL_ERROR)
            return
        has_sequence = engine.counters.next_sequence < self.journal.sequence_limit
        if not has_sequence or not self.journal.can_put(id, tube.name, body):
            link.reply(seat.number, request, 0, replies.OUT_OF_MEMORY)
            return
        engine.put(tube, id, priority, delay_s, ttr_s, body, now_ns)
        link.inserted(seat.number, request, id)

    # ---------------------------------------------------------------- reserve

    def _check_reserve(self, seat: Seat) -> None:
        if seat.request != NO_REQUEST:
            raise fault("a second reserve of one session")
        if seat.watched is None:
            raise fault("reserve without a watched tube in this slot")

    def _reserve(self, link: OwnerLink, seat: Seat, flags: i64, request: i64, now_ns: i64) -> None:
        self._check_reserve(seat)
        if self.holds_synced(link, seat, frames.RESERVE, flags, request, 0, now_ns):
            return
        nowait = flags == frames.FLAG_NOWAIT
        self.engine.reserve(seat, request, nowait, now_ns)
        if nowait and seat.request != NO_REQUEST:
            self._last(link, seat, now_ns)

    def _reserve_run(self, link: OwnerLink, seat: Seat, request: i64, count: i64, now_ns: i64) -> None:
        self._check_reserve(seat)
        if count < 1 or count > STREAM_COMMANDS_MAX:
            raise fault("a run of reserves of this length")
        if self.holds_synced(link, seat, frames.RESERVE_RUN, 0, request, count, now_ns):
            return
        jobs = self.engine.reserve_run(seat, count, now_ns)
        if len(jobs) == 0:
            link.cancelled(seat.number, request, False)
        elif len(jobs) == 1:
            link.granted(seat.number, request, jobs[0], jobs[0].ttr_ns())
        else:
            link.granted_run(seat.number, request, jobs)

    def _last(self, link: OwnerLink, seat: Seat, now_ns: i64) -> None:
        """Before the last word of a reserve that may not wait, clients that are gone on other links are looked for."""
        watched = seat.watched
        assert watched is not None
        if (
            seat.nowait
            and not seat.ending
            and watched.reserved_elsewhere > 0
            and self.syncs.needed(link, self.links)
        ):
            seat.syncing = True
            self.syncs.begin(link, seat, None, self.links, now_ns)
        self.engine.want_last_word(seat, now_ns)

    def _reserve_job(self, link: OwnerLink, seat: Seat, request: i64, id: i64, now_ns: i64) -> None:
        if self.not_found_synced(link, seat, frames.RESERVE_JOB, request, id, 0, 0, now_ns):
            return
        job = self.engine.find(id)
        if job is not None and (job.state == DELAYED or job.state == BURIED) and not self.journal.can_change():
            link.reply(seat.number, request, 0, replies.OUT_OF_MEMORY)
            return
        job = self.engine.reserve_job(seat, id, now_ns)
        if job is None:
            link.reply(seat.number, request, 0, replies.NOT_FOUND)
        else:
            link.granted(seat.number, request, job, job.ttr_ns())

    # ---------------------------------------------------------------- the end of a reservation

    def _delete(self, link: OwnerLink, seat: Seat, request: i64, id: i64, now_ns: i64) -> None:
        result = self.engine.delete(seat, id, now_ns)
        if result == NOT_FOUND:
            if not self.not_found_synced(link, seat, frames.DELETE, request, id, 0, 0, now_ns):
                link.reply(seat.number, request, 0, replies.NOT_FOUND)
        else:
            link.reply(seat.number, request, frames.FLAG_ENDED if result == DONE_ENDED else 0, replies.DELETED)

    def _release(
        self, link: OwnerLink, seat: Seat, request: i64, id: i64, priority: i64, delay_ns: i64, now_ns: i64
    ) -> None:
        delay_s = delay_ns // SECOND
        check_number(priority)
        check_number(delay_s)
        job = self.engine.own(seat, id)
        if job is None:
            if not self.not_found_synced(link, seat, frames.RELEASE, request, id, priority, delay_ns, now_ns):
                link.reply(seat.number, request, 0, replies.NOT_FOUND)
        elif not self.journal.can_change():
            link.reply(seat.number, request, 0, replies.OUT_OF_MEMORY)
        else:
            self.engine.release(seat, job, priority, delay_s, now_ns)
            link.reply(seat.number, request, frames.FLAG_ENDED, replies.RELEASED)

    def _bury(self, link: OwnerLink, seat: Seat, request: i64, id: i64, priority: i64, now_ns: i64) -> None:
        check_number(priority)
        job = self.engine.own(seat, id)
        if job is None:
            if not self.not_found_synced(link, seat, frames.BURY, request, id, priority, 0, now_ns):
                link.reply(seat.number, request, 0, replies.NOT_FOUND)
        elif not self.journal.can_change():
            link.reply(seat.number, request, 0, replies.INTERNAL_ERROR)
        else:
            self.engine.bury(seat, job, priority)
            link.reply(seat.number, request, frames.FLAG_ENDED, replies.BURIED)

    def _touch(self, link: OwnerLink, seat: Seat, request: i64, id: i64, now_ns: i64) -> None:
        job = self.engine.own(seat, id)
        if job is None:
            if not self.not_found_synced(link, seat, frames.TOUCH, request, id, 0, 0, now_ns):
                link.reply(seat.number, request, 0, replies.NOT_FOUND)
        else:
            link.touched(seat.number, request, id, self.engine.touch(job, now_ns))

    # ---------------------------------------------------------------- kick and pause

    def _kick(self, link: OwnerLink, seat: Seat, request: i64, bound: i64, now_ns: i64) -> None:
        tube = seat.used
        if tube is None:
            raise fault("kick without a used tube in this slot")
        buried = len(tube.buried.items) != 0
        there: i64 = len(tube.buried.items) if buried else len(tube.delayed.items)
        if bound > there:
            bound = there
        task = KickTask(link, seat, request, buried, bound)
        if bound > KICK_SLICE_JOBS or not self._kick_slice(task, tube, bound, now_ns):
            seat.blocked = True
            self.kicks.append(task)

    def _kick_slice(self, task: KickTask, tube: Tube, wanted: i64, now_ns: i64) -> bool:
        """Kicks `wanted` jobs as far as the budget goes, of which those who wait take their part. True: answered."""
        kicked = self.engine.kick_some(tube, task.buried, wanted, now_ns)
        task.kicked += kicked
        task.left -= kicked
        # With budget left and less kicked than wanted, there is nothing more, or no space to say so in the log.
        if task.left != 0 and (kicked == wanted or self.engine.budget <= 0):
            return False
        task.link.reply(task.seat.number, task.request, 0, replies.kicked(task.kicked))
        return True

    def kick_on(self, now_ns: i64) -> None:
        """A slice of each long kick."""
        left: list[KickTask] = []
        tasks = self.kicks
        self.kicks = left
        for task in tasks:
            tube = task.seat.used
            if task.seat.detached or tube is None:
                continue
            wanted = task.left if task.left < KICK_SLICE_JOBS else KICK_SLICE_JOBS
            if self._kick_slice(task, tube, wanted, now_ns):
                self.unblock(task.link, task.seat, now_ns)
            else:
                left.append(task)

    def _kick_job(self, link: OwnerLink, seat: Seat, request: i64, id: i64, now_ns: i64) -> None:
        if not self.journal.can_change() or not self.engine.kick_job(self.engine.find(id), now_ns):
            if not self.not_found_synced(link, seat, frames.KICK_JOB, request, id, 0, 0, now_ns):
                link.reply(seat.number, request, 0, replies.NOT_FOUND)
        else:
            link.reply(seat.number, request, 0, replies.KICKED)

    def _pause_tube(self, link: OwnerLink, seat: Seat, request: i64, delay_ns: i64, name: bytes, now_ns: i64) -> None:
        check_name(self.engine, name)
        delay_s = delay_ns // SECOND
        check_number(delay_s)
        tube = self.engine.tubes.get(name)
        if tube is None:
            link.reply(seat.number, request, 0, replies.NOT_FOUND)
            return
        self.engine.pause(tube, delay_s, now_ns)
        link.reply(seat.number, request, 0, replies.PAUSED)

    # ---------------------------------------------------------------- waiting for other links

    def sync_on(self, now_ns: i64) -> None:
        """Commands and last words that have waited for other links, and are through."""
        for wait in self.syncs.take_over(now_ns):
            seat = wait.seat
            deferred = wait.deferred
            if seat.detached:
                continue
            if deferred is None:
                if seat.request != wait.request:
                    continue  # dropped meanwhile; the request that followed it waits for links of its own
                seat.syncing = False
                if seat.ending and seat.queued:
                    self.engine.now_ns = now_ns
                    self.engine.say_last_word(seat)
                continue
            seat.synced = True
            self._execute_deferred(wait.link, seat, deferred, now_ns)
            seat.synced = False
            self.unblock(wait.link, seat, now_ns)

    def _execute_deferred(self, link: OwnerLink, seat: Seat, deferred: Deferred, now_ns: i64) -> None:
        self.execute(
            link,
            seat,
            deferred.opcode,
            deferred.flags,
            deferred.request,
            deferred.first,
            deferred.second,
            deferred.third,
            deferred.body,
            now_ns,
        )

    def set_aside(self, seat: Seat, deferred: Deferred) -> None:
        if len(seat.backlog) >= BACKLOG_FRAMES_MAX:
            raise fault("too many commands of one session")
        seat.backlog.append(deferred)

    def unblock(self, link: OwnerLink, seat: Seat, now_ns: i64) -> None:
        """Its command is through: those that were set aside follow, until one blocks again."""
        seat.blocked = False
        while len(seat.backlog) != 0 and not seat.blocked:
            self._execute_deferred(link, seat, seat.backlog.pop(0), now_ns)


def check_number(number: i64) -> None:
    if number < 0 or number > NUMBER_MAX:
        raise fault("a number out of range")
