"""Explores the reserve model exhaustively, and checks what must hold in every quiet state. See reserve_model.py.

python -m tests.model.reserve_explorer --list
python -m tests.model.reserve_explorer --config large --states 3000000
python -m tests.model.reserve_explorer --config two-in-turn --without sync_holds
"""

import argparse
import sys
import time
from collections import deque
from typing import Final, NamedTuple

from tests.model.reserve_model import step
from tests.model.reserve_state import (
    ASKED,
    AT_ONCE,
    CHOOSING,
    GONE,
    HELD,
    IDLE,
    LAST_SENT,
    NO_KEY,
    OFFERED,
    READY,
    RESERVED_JOB,
    TAKING,
    TIMED,
    WAITING,
    WAITS,
    Config,
    Rules,
    State,
    Violation,
    first_state,
)


def _frames_in_flight(state: State) -> list[tuple[str, int, int]]:
    moves = []
    for name, links in (("deliver_up", state.up), ("deliver_down", state.down)):
        for f, row in enumerate(links):
            for o, frames in enumerate(row):
                if frames:
                    moves.append((name, f, o))
    return moves


def _environment_moves(config: Config, state: State) -> list[tuple[str, int, int]]:
    moves: list[tuple[str, int, int]] = []
    for s, session in enumerate(state.sessions):
        outstanding = session.phase in (CHOOSING, WAITS, LAST_SENT)
        if session.phase == IDLE and session.position < len(config.scripts[s]):
            moves.append(("start", s, -1))
        if outstanding and session.time_left and config.scripts[s][session.position][0] == TIMED:
            moves.append(("time_runs_out", s, -1))
        if session.phase == CHOOSING and state.budget[2] > 0:
            words = [word[0] for word in session.words]
            if ASKED in words and TAKING not in words:
                moves.append(("leave_out", s, -1))
        if session.phase != GONE and session.position + session.phase > 0 and state.budget[3] > 0:
            moves.append(("leave", s, -1))
    seen = []
    for index, put in enumerate(state.puts):
        if config.puts[put] not in seen:
            seen.append(config.puts[put])
            moves.append(("put", index, -1))
    for o in range(config.owners):
        if state.budget[0] > 0:
            moves.extend(("delete", o, i) for i, job in enumerate(state.jobs[o]) if job[2] != RESERVED_JOB)
        if state.budget[1] > 0:
            for place, waiter in enumerate(state.waiters[o]):
                if waiter.phase == OFFERED:
                    moves.append(("take_back", o, place))
    return moves


def check_quiet(config: Config, state: State) -> None:
    """Nothing is in flight: what must be so then."""
    for o in range(config.owners):
        for job in state.jobs[o]:
            if job[2] == HELD:
                raise Violation(f"leaked hold of {job[:2]} for session {job[3]}")
        for waiter in state.waiters[o]:
            if waiter.phase != WAITING or waiter.last or waiter.syncing:
                raise Violation(f"owner {o} still owes a word to session {waiter.session} request {waiter.request}")
    for s, session in enumerate(state.sessions):
        if session.phase not in (CHOOSING, WAITS, LAST_SENT):
            continue
        if session.phase != WAITS or not session.time_left:
            raise Violation(f"session {s} is stuck without an answer")
        for o in config.scripts[s][session.position][1]:
            if [waiter.session for waiter in state.waiters[o]].count(s) != 1:
                raise Violation(f"session {s} waits, but not at owner {o}")
            if any(job[2] == READY for job in state.jobs[o]):
                raise Violation(f"session {s} waits beside a ready job of owner {o}")
    for s, session in enumerate(state.sessions):
        if session.phase == GONE and any(job[3] == s for jobs in state.jobs for job in jobs):
            raise Violation(f"session {s} is gone and still has a job")


class Explored(NamedTuple):
    states: int
    moves: int
    quiet: int
    complete: bool
    violation: str  # "" if none
    trace: tuple[str, ...]


def _trace(parents: list[tuple[int, tuple[str, int, int]]], at: int) -> list[tuple[str, int, int]]:
    moves = []
    while at > 0:
        at, move = parents[at]
        moves.append(move)
    moves.reverse()
    return moves


def _told(config: Config, moves: list[tuple[str, int, int]]) -> tuple[str, ...]:
    """The trace in words: each move with the frame it delivers."""
    lines = []
    state = first_state(config)
    for move in moves:
        name, first, second = move
        if name == "deliver_up":
            op, s, r, key = state.up[first][second][0]
            lines.append(f"owner {second} receives {op} of session {s} request {r} {'' if key == NO_KEY else key}")
        elif name == "deliver_down":
            op, s, r, key = state.down[first][second][0]
            lines.append(
                f"frontend {first} receives {op} for session {s} request {r} from owner {second} "
                f"{'' if key == NO_KEY else key}"
            )
        elif name == "put":
            lines.append(f"put (owner, priority) {config.puts[state.puts[first]]}, age {state.age + 1}")
        elif name == "delete":
            lines.append(f"delete of job {state.jobs[first][second][:2]} at owner {first}")
        elif name == "take_back":
            lines.append(f"owner {first} takes back the hold of session {state.waiters[first][second].session}")
        else:
            lines.append(f"{name} session {first}")
        try:
            state = step(config, state, move)
        except Violation as violation:
            lines.append(f"VIOLATION: {violation}")
    return tuple(lines)


def explore(config: Config, states_max: int) -> Explored:
    """Breadth first, so a violation comes with a shortest trace."""
    start = first_state(config)
    numbers: dict[State, int] = {start: 0}
    parents: list[tuple[int, tuple[str, int, int]]] = [(-1, ("", -1, -1))]
    queue = deque([start])
    by_delivery: list[list[int]] = [[]]  # predecessors through deliveries alone
    quiet: list[int] = []
    moves_count = 0
    while queue and len(numbers) < states_max:
        state = queue.popleft()
        number = numbers[state]
        deliveries = _frames_in_flight(state)
        if not deliveries:
            quiet.append(number)
            try:
                check_quiet(config, state)
            except Violation as violation:
                trace = (*_told(config, _trace(parents, number)), f"VIOLATION: {violation}")
                return Explored(len(numbers), moves_count, len(quiet), False, str(violation), trace)
        for move in deliveries + _environment_moves(config, state):
            moves_count += 1
            try:
                successor = step(config, state, move)
            except Violation as violation:
                trace = _told(config, [*_trace(parents, number), move])
                return Explored(len(numbers), moves_count, len(quiet), False, str(violation), trace)
            known = numbers.get(successor)
            if known is None:
                known = numbers[successor] = len(parents)
                parents.append((number, move))
                by_delivery.append([])
                queue.append(successor)
            if move[0].startswith("deliver"):
                by_delivery[known].append(number)
    if queue:
        return Explored(len(numbers), moves_count, len(quiet), False, "", ())
    stuck = _cannot_become(quiet, by_delivery)
    if stuck >= 0:
        trace = (*_told(config, _trace(parents, stuck)), "VIOLATION: this state can never become quiet")
        return Explored(len(numbers), moves_count, len(quiet), True, "a state that never becomes quiet", trace)
    return Explored(len(numbers), moves_count, len(quiet), True, "", ())


def _cannot_become(quiet: list[int], predecessors: list[list[int]]) -> int:
    """The first state from which no quiet one can be reached by deliveries alone; -1 if there is none."""
    reached = bytearray(len(predecessors))
    todo = list(quiet)
    for number in quiet:
        reached[number] = 1
    while todo:
        for before in predecessors[todo.pop()]:
            if not reached[before]:
                reached[before] = 1
                todo.append(before)
    return reached.find(0)


BOTH = (0, 1)
ALL = (0, 1, 2)
CONFIGS: Final = (
    Config("one-nowait-late-put", 2, (((AT_ONCE, BOTH),),), (0,), ((1, 5),), ((0, 3),), 2, 1, 1, 1),
    Config("one-timed-late-puts", 2, (((TIMED, BOTH),),), (0,), (), ((0, 5), (1, 3)), 1, 2, 1, 1),
    Config("two-nowait-one-job", 2, (((AT_ONCE, BOTH),), ((AT_ONCE, BOTH),)), (0, 1), ((1, 5),), ((0, 5),)),
    Config("two-in-turn", 2, (((AT_ONCE, BOTH),), ((AT_ONCE, BOTH),)), (0, 1), ((0, 1), (1, 2), (0, 3))),
    Config("wide-and-narrow", 2, (((AT_ONCE, BOTH),), ((AT_ONCE, (1,)),)), (0, 1), ((0, 1), (1, 2)), ((1, 3),)),
    Config("delete-under-hold", 2, (((AT_ONCE, BOTH),), ((AT_ONCE, BOTH),)), (0, 1), ((1, 5),), ((0, 5),), 1),
    Config("take-back", 2, (((AT_ONCE, BOTH),), ((TIMED, BOTH),)), (0, 1), ((1, 5),), (), 0, 1, 1),
    Config("slow-owner", 2, (((TIMED, BOTH),),), (0,), ((1, 5),), ((0, 3),), 1, 0, 2),
    Config("take-back-and-late-put", 2, (((AT_ONCE, BOTH),), ((AT_ONCE, (1,)),)), (0, 1), ((1, 5),), ((0, 5),), 1, 1),
    Config("three-owners", 3, (((AT_ONCE, ALL),), ((AT_ONCE, (1, 2)),)), (0, 1), ((1, 5),)),
    Config("leaver", 2, (((AT_ONCE, BOTH),), ((TIMED, (1,)),)), (0, 0), ((1, 5),), (), 0, 1, 0, 1),
)
LARGE: Final = (
    Config("large", 2, (((TIMED, BOTH),), ((AT_ONCE, BOTH),)), (0, 1), ((1, 5),), ((0, 5), (1, 3)), 1, 1, 1, 1),
    Config("three-owners-large", 3, (((AT_ONCE, ALL),), ((AT_ONCE, ALL),)), (0, 1), ((1, 5),), ((0, 5),), 1, 1),
    Config("three-sessions", 2, (((AT_ONCE, BOTH),),) * 3, (0, 1, 2), ((1, 5), (0, 4)), ((0, 5),), 1),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Explores the model of the multi-owner reserve.")
    parser.add_argument("--list", action="store_true", help="name the configurations")
    parser.add_argument(
        "--config", action="append", help="explore this one (may be repeated; all small ones if absent)"
    )
    parser.add_argument("--states", type=int, default=1_000_000, help="give up after this many states")
    parser.add_argument("--without", action="append", default=[], choices=Rules._fields, help="take a rule away")
    options = parser.parse_args()
    failed = False
    for config in CONFIGS + LARGE:
        if options.list:
            print(config.name + (" (large: only when named)" if config in LARGE else ""))
            continue
        if options.config is None and config in LARGE or options.config and config.name not in options.config:
            continue
        rules = Rules(*(name not in options.without for name in Rules._fields))
        began = time.monotonic()
        found = explore(config._replace(rules=rules), options.states)
        verdict = found.violation or ("holds" if found.complete else "not explored to the end")
        print(
            f"{config.name}: {found.states} states, {found.moves} moves, {found.quiet} quiet, "
            f"{time.monotonic() - began:.1f} s: {verdict}",
            flush=True,
        )
        for line in found.trace:
            print("    " + line)
        failed = failed or found.violation != ""
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
