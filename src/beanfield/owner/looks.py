"""What a frame may ask without changing anything: peeks, statistics, lists, replies in pieces.

With it stands what all commands need before an answer that a client closed on another link could make wrong: asking
the other links first (sync.py). commands.py is built on this, and does the command again when they have answered.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.constants import CHUNK_BYTES, TUBE_NAME_BYTES_MAX
from beanfield.engine.engine import Engine
from beanfield.engine.job import Job
from beanfield.errors import LinkFault
from beanfield.ipc import frames
from beanfield.ipc.role import RoleCore
from beanfield.owner.answers import job_stats, tube_names, tube_stats
from beanfield.owner.link import OwnerLink
from beanfield.owner.seat import Deferred, LargeReply, Seat
from beanfield.owner.sync import SyncDesk
from beanfield.proto import replies

PIECE: Final[i64] = CHUNK_BYTES


@mypyc_attr(native_class=True)
class Looks(RoleCore):
    """The engine, the links, and what is asked of them."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Engine = engine
        self.links: dict[int, OwnerLink] = {}
        self.syncs: SyncDesk = SyncDesk()

    def look(
        self, link: OwnerLink, seat: Seat, opcode: i64, request: i64, a: i64, body: bytes, now_ns: i64
    ) -> None:
        """A frame that changes nothing, of an open session that is not blocked."""
        if opcode == frames.MORE:
            self._more(link, seat, request)
        elif opcode == frames.STATS:
            if not self.synced_first(link, seat, opcode, request, a, body, now_ns):
                link.reply(seat.number, request, 0, b"")
        elif opcode == frames.LIST_TUBES:
            if not self.synced_first(link, seat, opcode, request, a, body, now_ns):
                link.large(seat, LargeReply(request, b"", tube_names(self.engine), b""))
        elif opcode == frames.STATS_TUBE:
            self._stats_tube(link, seat, request, body, now_ns)
        else:
            self._peek(link, seat, opcode, request, a, now_ns)

    def _peek(self, link: OwnerLink, seat: Seat, opcode: i64, request: i64, id: i64, now_ns: i64) -> None:
        job: Job | None = None
        tube = seat.used
        if opcode == frames.PEEK or opcode == frames.STATS_JOB:
            job = self.engine.find(id)
        elif tube is None:
            raise fault("peek without a used tube in this slot")
        elif opcode == frames.PEEK_READY:
            job = tube.first_ready()
            if job is None and tube.reserved_elsewhere(link.gate.index) > 0:
                if self.synced_first(link, seat, opcode, request, id, b"", now_ns):
                    return
        elif opcode == frames.PEEK_DELAYED:
            if len(tube.delayed.items) != 0:
                job = tube.delayed.items[0]
        elif len(tube.buried.items) != 0:
            job = tube.buried.items[0]
        if job is None:
            link.reply(seat.number, request, 0, replies.NOT_FOUND)
        elif opcode == frames.STATS_JOB:
            if self.not_found_synced(link, seat, opcode, request, id, 0, 0, now_ns):
                return
            link.reply(seat.number, request, 0, job_stats(self.engine, job, now_ns))
        elif len(job.body) > PIECE:
            head = replies.found_head(job.id, len(job.body))
            link.large(seat, LargeReply(request, head, job.body, replies.CRLF))
        else:
            link.reply(seat.number, request, 0, replies.found(job.id, job.body))

    def _stats_tube(self, link: OwnerLink, seat: Seat, request: i64, name: bytes, now_ns: i64) -> None:
        check_name(self.engine, name)
        # Who uses and watches it, and what is reserved, depends on clients that may have left elsewhere.
        if self.synced_first(link, seat, frames.STATS_TUBE, request, 0, name, now_ns):
            return
        tube = self.engine.tubes.get(name)
        if tube is None:
            link.reply(seat.number, request, 0, replies.NOT_FOUND)
        else:
            link.reply(seat.number, request, 0, tube_stats(tube, now_ns))

    def _more(self, link: OwnerLink, seat: Seat, request: i64) -> None:
        large = seat.large
        if large is None or large.request != request:
            raise fault("MORE of no reply")
        link.chunk(seat, large)

    # ---------------------------------------------------------------- waiting for other links

    def synced_first(
        self, link: OwnerLink, seat: Seat, opcode: i64, request: i64, a: i64, body: bytes, now_ns: i64
    ) -> bool:
        """True if the answer has to wait for the other links; the frame is then set aside and done again."""
        if seat.synced or not self.syncs.needed(link, self.links):
            return False
        seat.blocked = True
        self.syncs.begin(link, seat, Deferred(opcode, 0, request, a, 0, 0, body), self.links, now_ns)
        return True

    def not_found_synced(
        self, link: OwnerLink, seat: Seat, opcode: i64, request: i64, a: i64, b: i64, c: i64, now_ns: i64
    ) -> bool:
        """The same, before NOT_FOUND for (or stats of) a job that is reserved through another link."""
        if seat.synced or not self.engine.held_elsewhere(self.engine.find(a), seat):
            return False
        if not self.syncs.needed(link, self.links):
            return False
        seat.blocked = True
        self.syncs.begin(link, seat, Deferred(opcode, 0, request, a, b, c, b""), self.links, now_ns)
        return True

    def holds_synced(
        self, link: OwnerLink, seat: Seat, opcode: i64, flags: i64, request: i64, a: i64, now_ns: i64
    ) -> bool:
        """The same, before a reserve gets less than a job that is held through another link: its DROP may be near."""
        watched = seat.watched
        assert watched is not None
        if watched.held_count == 0 or seat.synced or not self.syncs.needed(link, self.links):
            return False
        if not self.engine.smaller_held_elsewhere(seat):
            return False
        seat.blocked = True
        self.syncs.begin(link, seat, Deferred(opcode, flags, request, a, 0, 0, b""), self.links, now_ns)
        return True


def fault(message: str) -> LinkFault:
    return LinkFault(frames.ERROR_FRAME, message)


def check_name(engine: Engine, name: bytes) -> None:
    """Frontends check spelling; here it must be of this slot, or two owners would have the same tube."""
    if len(name) == 0 or len(name) > TUBE_NAME_BYTES_MAX:
        raise fault("a tube name of this length")
    if engine.topology.slot_of_name(name) != engine.slot:
        raise fault("a tube of another slot")
