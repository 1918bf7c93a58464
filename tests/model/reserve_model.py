"""An abstract model of the multi-owner reserve (docs/ipc.md), explored state by state, exhaustively.

What is modelled: owners with one tube each, frontends, one FIFO per link and direction, sessions that run a short
script of reserves, and an environment that puts, deletes, lets time run out, half-closes (the same thing here: no time
left), takes holds back, leaves slow owners out of the choice, and lets clients go away: in every possible order.
Time is not modelled: whatever a timer does may happen at any moment, as often as its budget allows.

What is checked in every state: a job is held or reserved for one session at most; TIMED_OUT is true (below); commands
that do not overlap see the smallest job. In every quiet state (nothing in flight): no hold, no withheld word, nobody
waits beside a ready job, nobody without time left is unanswered. And every state can become quiet without help from
the environment: no session is stuck.

TIMED_OUT is true if the request could have been executed at one instant after its time had run out, with no job for
it: every job that stood at its owners at that instant was the next thing to be granted to some other request that was
outstanding at that instant too (a grant may be thought to happen anywhere between a request and its answer; puts and
deletes happen at their instant). That is linearizability, and needs hindsight: `Instant` keeps the jobs that must
still be granted.

The rules can be switched one by one (`Rules`), so that a test can show what each of them is for.
"""

from tests.model.reserve_state import (
    AGAIN,
    ASKED,
    AT_ONCE,
    CANCELLED,
    CHOOSING,
    EMPTY,
    GONE,
    HELD,
    IDLE,
    LAST_SENT,
    NO_KEY,
    NOT_ASKED,
    OFFER,
    OFFERED,
    READY,
    RESERVED_JOB,
    SILENT,
    TAKING,
    WAITING,
    WAITS,
    Config,
    Instant,
    Key,
    State,
    Violation,
    Waiter,
    already_true,
    minimal,
)


class World:
    """A state thawed for one step: the step mutates it, `freeze` gives the normalised successor."""

    def __init__(self, config: Config, state: State) -> None:
        self.config = config
        self.rules = config.rules
        self.jobs = [list(jobs) for jobs in state.jobs]
        self.waiters = [list(waiters) for waiters in state.waiters]
        self.up = [[list(frames) for frames in row] for row in state.up]
        self.down = [[list(frames) for frames in row] for row in state.down]
        self.sessions = list(state.sessions)
        self.puts = list(state.puts)
        self.budget = list(state.budget)
        self.age = state.age

    def freeze(self) -> State:
        self._note_instants()
        return State(
            tuple(tuple(sorted(jobs)) for jobs in self.jobs),
            tuple(tuple(waiters) for waiters in self.waiters),
            tuple(tuple(tuple(frames) for frames in row) for row in self.up),
            tuple(tuple(tuple(frames) for frames in row) for row in self.down),
            tuple(self.sessions),
            tuple(self.puts),
            (self.budget[0], self.budget[1], self.budget[2], self.budget[3]),
            self.age,
        )

    # ---------------------------------------------------------------- what the checker knows and the cores do not
    def outstanding(self, session: int) -> bool:
        return self.sessions[session].phase in (CHOOSING, WAITS, LAST_SENT)

    def owners_of(self, session: int) -> tuple[int, ...]:
        return self.config.scripts[session][self.sessions[session].position][1]

    def _note_instants(self) -> None:
        for s, session in enumerate(self.sessions):
            if not self.outstanding(s) or session.time_left or already_true(session.instants):
                continue
            jobs = frozenset(
                (job[0], job[1]) for o in self.owners_of(s) for job in self.jobs[o] if job[2] != RESERVED_JOB
            )
            others = frozenset(t for t in range(len(self.sessions)) if t != s and self.outstanding(t))
            if jobs and not others:
                continue
            instant = Instant(jobs, others if jobs else frozenset())
            self.sessions[s] = session._replace(instants=minimal([*session.instants, instant]))

    def _job_granted(self, key: Key, to: int) -> None:
        for s, session in enumerate(self.sessions):
            if s == to:
                continue
            kept = []
            for jobs, sessions in session.instants:
                if key not in jobs:
                    kept.append(Instant(jobs, sessions))
                elif to in sessions:
                    rest = jobs - {key}
                    kept.append(Instant(rest, sessions if rest else frozenset()))
            self.sessions[s] = session._replace(instants=minimal(kept))

    def _job_lost(self, key: Key) -> None:
        for s, session in enumerate(self.sessions):
            kept = [instant for instant in session.instants if key not in instant.jobs]
            self.sessions[s] = session._replace(instants=minimal(kept))

    def _request_over(self, s: int) -> None:
        """The session's request has ended: no later grant to it can be thought to belong to an instant before."""
        for t, session in enumerate(self.sessions):
            kept = []
            for jobs, sessions in session.instants:
                rest = sessions - {s}
                if rest or not jobs:
                    kept.append(Instant(jobs, rest))
            self.sessions[t] = session._replace(instants=minimal(kept))

    def _disturb_all(self) -> None:
        for s in range(len(self.sessions)):
            if self.outstanding(s):
                self.sessions[s] = self.sessions[s]._replace(disturbed=True)

    # ---------------------------------------------------------------- owner
    def _send_down(self, o: int, op: str, s: int, r: int, key: Key = NO_KEY) -> None:
        self.down[self.config.frontend_of[s]][o].append((op, s, r, key))

    def _place_of(self, o: int, s: int, r: int) -> int:
        for place, waiter in enumerate(self.waiters[o]):
            if waiter.session == s and waiter.request == r:
                return place
        return -1

    def _smallest_ready(self, o: int) -> int:
        """Index of the smallest job that is ready and not held; -1 if there is none."""
        best = -1
        for i, job in enumerate(self.jobs[o]):
            if job[2] == READY and (best < 0 or job[:2] < self.jobs[o][best][:2]):
                best = i
        return best

    def _set_job(self, o: int, index: int, status: int, holder: int) -> None:
        priority, age, before, _ = self.jobs[o][index]
        if status == HELD and before != READY or status == RESERVED_JOB and before == RESERVED_JOB:
            raise Violation(f"job {priority, age} is given twice")
        self.jobs[o][index] = (priority, age, status, holder)

    def _unhold(self, o: int, s: int) -> None:
        for i, job in enumerate(self.jobs[o]):
            if job[2] == HELD and job[3] == s:
                self._set_job(o, i, READY, -1)

    def _grant(self, o: int, index: int, place: int) -> None:
        s, r = self.waiters[o].pop(place)[:2]
        priority, age, _, _ = self.jobs[o][index]
        session = self.sessions[s]
        if self.outstanding(s) and not session.disturbed:
            for other in self.owners_of(s):
                for job in self.jobs[other]:
                    if job[2] != RESERVED_JOB and job[:2] < (priority, age):
                        raise Violation(f"session {s}, alone, was granted {priority, age} before {job[:2]}")
        self._set_job(o, index, RESERVED_JOB, s)
        self._job_granted((priority, age), s)
        self._send_down(o, "RESERVED", s, r, (priority, age))

    def _pump(self, o: int) -> None:
        """Jobs to waiters in order of arrival, then the last words that are no longer withheld."""
        place = 0
        while place < len(self.waiters[o]):
            waiter = self.waiters[o][place]
            s = waiter.session
            if waiter.phase != WAITING or waiter.syncing:
                place += 1
                continue
            index = self._smallest_ready(o)
            if index >= 0 and not waiter.multi:
                self._grant(o, index, place)
                continue
            if index >= 0:
                self._offer(o, index, place)
            elif waiter.last and not (self.rules.withhold and self._held_for_another(o, s)):
                self._last_word(o, place, waiter.lost_one)
                continue
            place += 1

    def _offer(self, o: int, index: int, place: int) -> None:
        waiter = self.waiters[o][place]
        self._set_job(o, index, HELD, waiter.session)
        self.waiters[o][place] = waiter._replace(phase=OFFERED)
        self._send_down(o, "OFFER", waiter.session, waiter.request, self.jobs[o][index][:2])

    def _last_word(self, o: int, place: int, again: bool) -> None:
        waiter = self.waiters[o].pop(place)
        again = again and waiter.multi and self.rules.lost_job_asks_again
        self._send_down(o, "AGAIN" if again else "CANCELLED", waiter.session, waiter.request)

    def _held_for_another(self, o: int, s: int) -> bool:
        return any(job[2] == HELD and job[3] != s for job in self.jobs[o])

    def _smaller_is_held_elsewhere(self, o: int, s: int) -> list[int]:
        """The other frontends through which a job is held that is smaller than all that this session could get now."""
        index = self._smallest_ready(o)
        frontends = []
        for job in self.jobs[o]:
            if job[2] == HELD and (index < 0 or job[:2] < self.jobs[o][index][:2]):
                frontend = self.config.frontend_of[job[3]]
                if frontend != self.config.frontend_of[s] and frontend not in frontends:
                    frontends.append(frontend)
        return sorted(frontends)

    def _owner_asked(self, o: int, s: int, r: int, last: bool, multi: bool) -> None:
        elsewhere = self._smaller_is_held_elsewhere(o, s) if self.rules.sync_holds else []
        self.waiters[o].append(Waiter(s, r, WAITING, last, multi, bool(elsewhere), False))
        if elsewhere:
            for frontend in elsewhere:
                self.down[frontend][o].append(("SYNC", s, r, NO_KEY))
            return
        self._answer_asked(o, s, r)

    def _answer_asked(self, o: int, s: int, r: int) -> None:
        self._pump(o)
        place = self._place_of(o, s, r)
        if place >= 0 and self.waiters[o][place].multi and self.waiters[o][place].phase == WAITING:
            self._send_down(o, "EMPTY", s, r)

    def _owner_synced(self, o: int, s: int, r: int) -> None:
        place = self._place_of(o, s, r)
        if place < 0 or not self.waiters[o][place].syncing:
            return
        waiting_for = [
            frame
            for f in range(len(self.up))
            for frame in [*self.down[f][o], *self.up[f][o]]
            if frame[0] in ("SYNC", "SYNCED") and frame[1:3] == (s, r)
        ]
        if not waiting_for:
            self.waiters[o][place] = self.waiters[o][place]._replace(syncing=False)
            self._answer_asked(o, s, r)

    def _owner_take(self, o: int, s: int, r: int, key: Key) -> None:
        place = self._place_of(o, s, r)
        if place < 0:
            return
        waiter = self.waiters[o][place]
        self._unhold(o, s)
        index = self._smallest_ready(o)
        if index >= 0 and self.jobs[o][index][:2] <= key:
            self._grant(o, index, place)
        elif index >= 0:
            self._offer(o, index, place)
        else:
            self.waiters[o][place] = waiter._replace(phase=WAITING)
            if not waiter.last:
                self._send_down(o, "EMPTY", s, r)
            elif self.rules.lost_job_asks_again:
                self._last_word(o, place, True)
        self._pump(o)

    def _owner_last(self, o: int, s: int, r: int) -> None:
        place = self._place_of(o, s, r)
        if place < 0:
            return
        waiter = self.waiters[o][place]
        silent = waiter.phase == SILENT and self.rules.last_is_silent_after_offer
        phase = WAITING if waiter.phase == SILENT and not silent else waiter.phase
        self.waiters[o][place] = waiter._replace(phase=phase, last=True)
        self._pump(o)

    def _owner_drop(self, o: int, s: int, r: int) -> None:
        place = self._place_of(o, s, r)
        if place < 0:
            return
        self._unhold(o, s)
        self.waiters[o].pop(place)
        self._pump(o)

    def _owner_detach(self, o: int, s: int) -> None:
        self.waiters[o] = [waiter for waiter in self.waiters[o] if waiter.session != s]
        for i, job in enumerate(self.jobs[o]):
            if job[2] != READY and job[3] == s:
                self._set_job(o, i, READY, -1)
        self._pump(o)

    def deliver_up(self, f: int, o: int) -> None:
        op, s, r, key = self.up[f][o].pop(0)
        if op == "ASK":
            self._owner_asked(o, s, r, False, True)
        elif op == "RESERVE" or op == "RESERVE_NOWAIT":
            self._owner_asked(o, s, r, op == "RESERVE_NOWAIT", False)
        elif op == "TAKE":
            self._owner_take(o, s, r, key)
        elif op == "LAST":
            self._owner_last(o, s, r)
        elif op == "DROP":
            self._owner_drop(o, s, r)
        elif op == "DETACH":
            self._owner_detach(o, s)
        else:
            assert op == "SYNCED"
            self._owner_synced(o, s, r)

    # ---------------------------------------------------------------- frontend
    def _send_up(self, s: int, o: int, op: str, key: Key = NO_KEY) -> None:
        self.up[self.config.frontend_of[s]][o].append((op, s, self.sessions[s].request, key))

    def _set_word(self, s: int, o: int, word: int, key: Key = NO_KEY) -> None:
        words = list(self.sessions[s].words)
        words[o] = (word, key)
        self.sessions[s] = self.sessions[s]._replace(words=tuple(words))

    def start(self, s: int) -> None:
        session = self.sessions[s]
        kind, owners = self.config.scripts[s][session.position]
        self._disturb_all()
        beside = any(self.outstanding(t) for t in range(len(self.sessions)))
        beside = beside or any(frame[0] == "DETACH" for row in self.up for frames in row for frame in frames)
        self.sessions[s] = session._replace(time_left=kind != AT_ONCE, disturbed=beside, instants=())
        self._ask(s, owners)

    def _ask(self, s: int, owners: tuple[int, ...]) -> None:
        session = self.sessions[s]
        words = tuple((NOT_ASKED, NO_KEY) for _ in range(self.config.owners))
        self.sessions[s] = session._replace(request=session.request + 1, phase=CHOOSING, words=words)
        for o in owners:
            self._set_word(s, o, ASKED)
            if len(owners) > 1:
                self._send_up(s, o, "ASK")
            else:
                self._send_up(s, o, "RESERVE" if session.time_left else "RESERVE_NOWAIT")
        if len(owners) == 1:
            phase = WAITS if session.time_left else LAST_SENT
            self.sessions[s] = self.sessions[s]._replace(phase=phase)

    def _finish(self, s: int, timed_out: bool) -> None:
        session = self.sessions[s]
        if timed_out and not already_true(session.instants):
            raise Violation(f"session {s}: TIMED_OUT, but there never was an instant without a job for it")
        for o in self.owners_of(s):
            if session.words[o][0] not in (CANCELLED, AGAIN) and len(self.owners_of(s)) > 1:
                self._send_up(s, o, "DROP")
        words = tuple((NOT_ASKED, NO_KEY) for _ in session.words)
        self.sessions[s] = session._replace(
            phase=IDLE, position=session.position + 1, words=words, instants=(), disturbed=False, time_left=True
        )
        self._request_over(s)

    def _go_on(self, s: int) -> None:
        """What the words at hand ask for: TAKE, wait, LAST or TIMED_OUT."""
        session = self.sessions[s]
        words = [session.words[o] for o in self.owners_of(s)]
        if any(word[0] == TAKING for word in words):
            return
        offers = [(session.words[o][1], o) for o in self.owners_of(s) if session.words[o][0] == OFFER]
        if session.phase == CHOOSING and any(word[0] == ASKED for word in words):
            return
        if offers:
            key, o = min(offers)
            self._set_word(s, o, TAKING)
            self._send_up(s, o, "TAKE", key)
        elif session.phase == LAST_SENT:
            if any(word[0] not in (CANCELLED, AGAIN) for word in words):
                return
            if any(word[0] == AGAIN for word in words):
                self._ask(s, self.owners_of(s))
            else:
                self._finish(s, True)
        else:
            self._wait_or_last(s)

    def _wait_or_last(self, s: int) -> None:
        session = self.sessions[s]
        unanswered = any(session.words[o][0] == ASKED for o in self.owners_of(s))
        if session.time_left or unanswered and self.rules.last_after_all_asks:
            self.sessions[s] = session._replace(phase=WAITS)
            return
        self.sessions[s] = session._replace(phase=LAST_SENT)
        for o in self.owners_of(s):
            self._send_up(s, o, "LAST")

    def deliver_down(self, f: int, o: int) -> None:
        op, s, r, key = self.down[f][o].pop(0)
        if op == "SYNC":
            self.up[f][o].append(("SYNCED", s, r, NO_KEY))
            return
        session = self.sessions[s]
        if not self.outstanding(s) or session.request != r:
            return
        if op == "RESERVED":
            if (key[0], key[1], RESERVED_JOB, s) not in self.jobs[o]:
                raise Violation(f"session {s} is told RESERVED {key}, which it has not")
            if len(self.owners_of(s)) > 1 and session.words[o][0] != TAKING:
                raise Violation(f"session {s} is told RESERVED without TAKE")
            self._set_word(s, o, CANCELLED)
            self._finish(s, False)
            return
        if op == "OFFER":
            self._set_word(s, o, OFFER, key)
        elif op == "CANCELLED" or op == "AGAIN":
            self._set_word(s, o, CANCELLED if op == "CANCELLED" else AGAIN)
        else:
            assert op == "EMPTY"
            self._set_word(s, o, EMPTY)
        self._go_on(s)

    # ---------------------------------------------------------------- environment
    def put(self, index: int) -> None:
        o, priority = self.config.puts[self.puts.pop(index)]
        self._disturb_all()
        self.age += 1
        self.jobs[o].append((priority, self.age, READY, -1))
        self._pump(o)

    def delete(self, o: int, index: int) -> None:
        self._disturb_all()
        self.budget[0] -= 1
        priority, age, _, _ = self.jobs[o].pop(index)
        self._job_lost((priority, age))
        self.waiters[o] = [waiter._replace(lost_one=True) for waiter in self.waiters[o]]
        self._pump(o)

    def take_back(self, o: int, place: int) -> None:
        self.budget[1] -= 1
        self.waiters[o][place] = self.waiters[o][place]._replace(phase=SILENT)
        self._unhold(o, self.waiters[o][place].session)
        self._pump(o)

    def leave_out(self, s: int) -> None:
        """The owners that have not answered ASK are slow: the choice is made without them."""
        self.budget[2] -= 1
        words = list(self.sessions[s].words)
        offered = any(word[0] == OFFER for word in words)
        # No promise about order with slow owners.
        self.sessions[s] = self.sessions[s]._replace(disturbed=True)
        if offered:
            key, o = min((word[1], o) for o, word in enumerate(words) if word[0] == OFFER)
            self._set_word(s, o, TAKING)
            self._send_up(s, o, "TAKE", key)
        else:
            self._wait_or_last(s)

    def time_runs_out(self, s: int) -> None:
        session = self.sessions[s]
        self.sessions[s] = session._replace(time_left=False)
        if len(self.owners_of(s)) == 1:
            self.sessions[s] = self.sessions[s]._replace(phase=LAST_SENT)
            self._send_up(s, self.owners_of(s)[0], "LAST")
        else:
            self._go_on(s)

    def leave(self, s: int) -> None:
        self._disturb_all()
        self.budget[3] -= 1
        for o in range(self.config.owners):
            self._send_up(s, o, "DETACH")
        self.sessions[s] = self.sessions[s]._replace(phase=GONE, instants=(), words=())
        self._request_over(s)


def step(config: Config, state: State, move: tuple[str, int, int]) -> State:
    name, first, second = move
    world = World(config, state)
    if name == "deliver_up":
        world.deliver_up(first, second)
    elif name == "deliver_down":
        world.deliver_down(first, second)
    elif name == "delete":
        world.delete(first, second)
    elif name == "take_back":
        world.take_back(first, second)
    elif name == "put":
        world.put(first)
    elif name == "start":
        world.start(first)
    elif name == "leave_out":
        world.leave_out(first)
    elif name == "time_runs_out":
        world.time_runs_out(first)
    else:
        assert name == "leave"
        world.leave(first)
    return world.freeze()
