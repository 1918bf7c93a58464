"""What a state of the reserve model is made of, and what a world of it is configured by. See reserve_model.py."""

from typing import Final, NamedTuple

Key = tuple[int, int]  # (priority, age): age stands for created_ns and id, it grows with every put
Job = tuple[int, int, int, int]  # priority, age, status, holder
READY, HELD, RESERVED_JOB = 0, 1, 2
NO_KEY: Final[Key] = (-1, -1)

# Frames: (opcode, session, request, key)
Frame = tuple[str, int, int, Key]


class Waiter(NamedTuple):
    """A request at an owner; its place in the queue is kept from its arrival until it ends."""

    session: int
    request: int
    phase: int
    last: bool  # LAST has come (or it never may wait)
    multi: bool  # the request has other owners too
    syncing: bool  # not answered yet: a smaller job is held through a link that is being asked
    lost_one: bool  # since it came, a job left this owner by another way than a grant


WAITING, OFFERED, SILENT = 0, 1, 2  # SILENT: its hold was taken back, nothing more until its frontend has spoken

# Words a frontend has from an owner
NOT_ASKED, ASKED, EMPTY, OFFER, TAKING, CANCELLED, AGAIN = 0, 1, 2, 3, 4, 5, 6
Word = tuple[int, Key]

# Session phases
IDLE, CHOOSING, WAITS, LAST_SENT, GONE = 0, 1, 2, 3, 4


class Rules(NamedTuple):
    """Each rule of docs/ipc.md that a negative test may take away."""

    withhold: bool = True  # CANCELLED waits while a job this request could have is held for another
    # A job that left by another way than a grant (deleted under a hold for another, or under our own offer) while a
    # request of several owners waited here may have been the only one at the instant when another owner said
    # CANCELLED, and gone before this one does. The word is then AGAIN: like CANCELLED, but no ground for TIMED_OUT;
    # with all words in, the frontend begins the request anew. So is the word of a TAKE that fails after LAST.
    lost_job_asks_again: bool = True
    # Before ASK or RESERVE is answered with less than a smaller job that is held through another link, that link is
    # asked to say what it has on its way (SYNC): a DROP sent before the last reply may still be there.
    sync_holds: bool = True
    last_is_silent_after_offer: bool = True  # the OFFER under way is the last word, taken back or not
    # LAST goes out when every owner has answered ASK, slow ones included: a CANCELLED proves nothing about an owner
    # at which the request does not stand in the queue yet.
    last_after_all_asks: bool = True


class Config(NamedTuple):
    """One world: `scripts[s]` are the reserves of session s, each (times out: 0 never, 1 yes, 2 at once; owners)."""

    name: str
    owners: int
    scripts: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]
    frontend_of: tuple[int, ...]
    stored: tuple[tuple[int, int], ...]  # (owner, priority) there from the start
    puts: tuple[tuple[int, int], ...] = ()  # (owner, priority) that may be put at any moment
    deletes: int = 0
    take_backs: int = 0
    leave_outs: int = 0
    leavers: int = 0
    rules: Rules = Rules()


NEVER, TIMED, AT_ONCE = 0, 1, 2


class Violation(Exception):
    """A rule of the model is broken; the trace says how."""


class Instant(NamedTuple):
    jobs: frozenset[Key]  # those that must still be granted to one of:
    sessions: frozenset[int]


class Session(NamedTuple):
    position: int  # in its script
    request: int
    phase: int
    words: tuple[Word, ...]
    time_left: bool
    disturbed: bool  # another command ran beside this one
    instants: tuple[Instant, ...]  # at which TIMED_OUT would have been true; only kept when no time is left


class State(NamedTuple):
    jobs: tuple[tuple[Job, ...], ...]  # by owner
    waiters: tuple[tuple[Waiter, ...], ...]  # by owner, in order of arrival
    up: tuple[tuple[tuple[Frame, ...], ...], ...]  # [frontend][owner]
    down: tuple[tuple[tuple[Frame, ...], ...], ...]
    sessions: tuple[Session, ...]
    puts: tuple[int, ...]  # indexes into Config.puts still to come
    budget: tuple[int, int, int, int]  # deletes, take backs, leave outs, leavers
    age: int


def already_true(instants: tuple[Instant, ...]) -> bool:
    return any(not instant.jobs for instant in instants)


def minimal(instants: list[Instant]) -> tuple[Instant, ...]:
    """Without those that another one makes useless, in a fixed order."""
    if any(not instant.jobs for instant in instants):
        return (Instant(frozenset(), frozenset()),)
    kept: list[Instant] = []
    for a in instants:
        if a in kept or any(b != a and b.jobs <= a.jobs and b.sessions >= a.sessions for b in instants):
            continue
        kept.append(a)
    return tuple(sorted(kept, key=lambda instant: (sorted(instant.jobs), sorted(instant.sessions))))


def first_state(config: Config) -> State:
    frontends = max(config.frontend_of) + 1
    jobs: list[list[Job]] = [[] for _ in range(config.owners)]
    for age, (o, priority) in enumerate(config.stored):
        jobs[o].append((priority, age, READY, -1))
    no_words = tuple((NOT_ASKED, NO_KEY) for _ in range(config.owners))
    links: tuple[tuple[tuple[Frame, ...], ...], ...] = tuple(
        tuple(() for _ in range(config.owners)) for _ in range(frontends)
    )
    sessions = tuple(Session(0, 0, IDLE, no_words, True, False, ()) for _ in config.scripts)
    return State(
        tuple(tuple(sorted(row)) for row in jobs),
        tuple(() for _ in range(config.owners)),
        links,
        links,
        sessions,
        tuple(range(len(config.puts))),
        (config.deletes, config.take_backs, config.leave_outs, config.leavers),
        len(config.stored),
    )
