"""The supervisor's decisions, with no process at all: events and times in, actions out."""

from beanfield.constants import (
    CRASHED_RETRY_NS,
    EXIT_BAD_DATA,
    EXIT_DISK,
    NS_PER_MS,
    NS_PER_S,
    RESTART_NS_MAX,
    RESTART_NS_MIN,
    STOP_KILL_NS,
    STOP_OWNERS_NS,
)
from beanfield.ipc.frames import ROLE_FRONTEND, ROLE_OWNER
from beanfield.supervisor import core_actions as act
from beanfield.supervisor.core import PHASE_SERVING, SupervisorCore
from beanfield.supervisor.core_children import SLOT_RESTARTING, SLOT_UNAVAILABLE, SLOT_UP

WALL_NS = 1_700_000_000 * NS_PER_S
KILLED = -9


class Bench:
    """A core, its clock, and the generations of the children as a supervisor would know them."""

    def __init__(self, slots=1, frontends=1, hang_timeout_s=10):
        self.core = SupervisorCore(slots, frontends, hang_timeout_s * NS_PER_S)
        self.now = 1_000 * NS_PER_S
        self.generations = {}
        self.core.start(self.now)

    def take(self, *kinds):
        actions = self.core.take_actions()
        for action in actions:
            if action.kind == act.DO_SPAWN:
                self.generations[(action.role, action.index)] = action.generation
        return [action for action in actions if not kinds or action.kind in kinds]

    def owner(self, index):
        return ROLE_OWNER, index, self.generations[(ROLE_OWNER, index)]

    def frontend(self, index):
        return ROLE_FRONTEND, index, self.generations[(ROLE_FRONTEND, index)]

    def replayed(self, index, created_ns=0):
        self.core.child_replayed(index, self.owner(index)[2], created_ns, self.now, WALL_NS)

    def ready(self, index):
        self.core.child_ready(index, self.owner(index)[2], self.now)

    def started(self, index):
        self.core.child_started(*self.frontend(index), self.now)

    def serve(self):
        self.take()
        for index in range(len(self.core.owners)):
            self.replayed(index)
        for index in range(len(self.core.owners)):
            self.ready(index)
        for index in range(len(self.core.frontends)):
            self.started(index)
        assert self.core.phase == PHASE_SERVING
        return self.take()

    def exits(self, child, code=KILLED):
        self.core.child_exited(*child, code, self.now)

    def wait(self, duration_ns):
        self.now += duration_ns
        self.core.tick(self.now)

    def bring_back(self, index):
        """A slot that is being restarted comes back."""
        self.replayed(index)
        self.ready(index)


def kinds(actions):
    return [action.kind for action in actions]


def test_start_spawns_everything_owners_first_with_growing_generations():
    bench = Bench(slots=2, frontends=2)
    spawned = bench.take()
    assert kinds(spawned) == [act.DO_SPAWN] * 4
    assert [action.role for action in spawned] == [ROLE_OWNER, ROLE_OWNER, ROLE_FRONTEND, ROLE_FRONTEND]
    assert [action.generation for action in spawned] == [1, 2, 3, 4]


def test_owners_open_together_once_all_have_replayed():
    bench = Bench(slots=2)
    bench.take()
    bench.replayed(0, created_ns=WALL_NS + 5)
    assert bench.take() == []
    bench.replayed(1, created_ns=7)
    opened = bench.take()
    assert kinds(opened) == [act.DO_OPEN, act.DO_OPEN]
    # The clock went back since the data was written: new jobs must still come after it.
    assert {action.number for action in opened} == {WALL_NS + 6 - bench.now}


def test_frontends_accept_only_when_all_owners_serve():
    bench = Bench(slots=2, frontends=1)
    bench.take()
    bench.started(0)
    bench.replayed(0)
    bench.replayed(1)
    bench.ready(0)
    assert act.DO_ACCEPT not in kinds(bench.take())
    bench.ready(1)
    actions = bench.take()
    wanted = [act.DO_LINK, act.DO_LINK, act.DO_ACCEPT, act.DO_SERVING]
    assert [kind for kind in kinds(actions) if kind in wanted] == wanted


def test_child_that_exits_before_serving_ends_the_start():
    bench = Bench(slots=1, frontends=1)
    bench.take()
    bench.core.child_failed(*bench.owner(0), "no such directory")
    bench.exits(bench.owner(0), EXIT_BAD_DATA)
    actions = bench.take()
    assert any("no such directory" in action.text for action in actions if action.kind == act.DO_LOG)
    assert act.DO_SPAWN not in kinds(actions)
    bench.exits(bench.frontend(0), 0)
    assert [action.number for action in bench.take(act.DO_EXIT)] == [EXIT_BAD_DATA]


def test_dead_owner_is_told_to_frontends_and_comes_back_with_new_links():
    bench = Bench(slots=2, frontends=2)
    bench.serve()
    old = bench.owner(1)
    bench.exits(old)
    states = bench.take(act.DO_SLOT_STATE)
    assert [(a.index, a.peer, a.number) for a in states] == [(0, 1, SLOT_RESTARTING), (1, 1, SLOT_RESTARTING)]
    assert bench.core.next_deadline_ns() == bench.now + RESTART_NS_MIN
    bench.wait(RESTART_NS_MIN)
    bench.take()
    assert bench.owner(1)[2] > old[2]
    bench.replayed(1)
    assert kinds(bench.take()) == [act.DO_OPEN]
    bench.ready(1)
    actions = bench.take(act.DO_SLOT_STATE, act.DO_LINK)
    assert kinds(actions) == [act.DO_SLOT_STATE, act.DO_LINK, act.DO_SLOT_STATE, act.DO_LINK]
    assert {a.number for a in actions if a.kind == act.DO_SLOT_STATE} == {SLOT_UP}


def test_later_generation_of_an_owner_gets_the_same_offset():
    bench = Bench()
    bench.take()
    bench.replayed(0)
    first = bench.take(act.DO_OPEN)[0].number
    bench.ready(0)
    bench.started(0)
    bench.take()
    bench.exits(bench.owner(0))
    bench.wait(30 * NS_PER_S)
    bench.take()
    bench.replayed(0, created_ns=WALL_NS * 2)
    assert bench.take(act.DO_OPEN)[0].number == first


def test_words_of_an_older_generation_change_nothing():
    bench = Bench()
    bench.serve()
    old = bench.owner(0)
    bench.exits(old)
    bench.wait(RESTART_NS_MIN)
    bench.take()
    bench.core.child_replayed(0, old[2], 0, bench.now, WALL_NS)
    bench.core.child_ready(0, old[2], bench.now)
    bench.exits(old)
    assert bench.take() == []


def test_back_off_doubles_to_its_limit_and_begins_anew_after_long_service():
    bench = Bench()
    bench.serve()
    waits = []
    for _ in range(8):
        bench.exits(bench.owner(0), EXIT_BAD_DATA)
        bench.take()
        deadline = bench.core.owners[0].restart_ns
        waits.append(deadline - bench.now)
        bench.wait(deadline - bench.now)
        bench.take()
    assert waits == [min(RESTART_NS_MIN << step, RESTART_NS_MAX) for step in range(8)]
    bench.bring_back(0)
    bench.wait(20 * NS_PER_S)
    bench.take()
    bench.exits(bench.owner(0))
    assert bench.core.owners[0].restart_ns == bench.now + RESTART_NS_MIN


def test_slot_that_cannot_start_is_unavailable_at_once_until_it_serves():
    bench = Bench(slots=2)
    bench.serve()
    bench.exits(bench.owner(0))
    assert [a.number for a in bench.take(act.DO_SLOT_STATE)] == [SLOT_RESTARTING]
    bench.wait(RESTART_NS_MIN)
    bench.take()
    bench.exits(bench.owner(0), EXIT_BAD_DATA)
    assert [a.number for a in bench.take(act.DO_SLOT_STATE)] == [SLOT_UNAVAILABLE]
    bench.wait(RESTART_NS_MAX)
    bench.take()
    bench.bring_back(0)
    assert [a.number for a in bench.take(act.DO_SLOT_STATE)] == [SLOT_UP]


def test_an_owner_whose_disk_failed_tries_it_before_all_else_until_it_serves():
    bench = Bench()
    bench.serve()
    bench.exits(bench.owner(0), EXIT_DISK)
    assert [a.number for a in bench.take(act.DO_SLOT_STATE)] == [SLOT_UNAVAILABLE]
    for _ in range(3):
        bench.wait(bench.core.owners[0].restart_ns - bench.now)
        assert [a.on for a in bench.take(act.DO_SPAWN)] == [True]
        bench.core.child_failed(*bench.owner(0), "no write")
        bench.exits(bench.owner(0), EXIT_DISK)
        bench.take()
    bench.wait(RESTART_NS_MAX)
    bench.take()
    bench.bring_back(0)
    bench.take()
    bench.exits(bench.owner(0))
    bench.wait(bench.core.owners[0].restart_ns - bench.now)
    assert [a.on for a in bench.take(act.DO_SPAWN)] == [False]


def test_the_same_fault_of_a_start_is_logged_once():
    bench = Bench()
    bench.serve()
    said = []
    for fault in ("file 1", "file 1", "file 1", "file 2"):
        bench.core.child_failed(*bench.owner(0), fault)
        bench.exits(bench.owner(0), EXIT_BAD_DATA)
        said += [a.text for a in bench.take(act.DO_LOG) if "exit code" in a.text]
        bench.wait(RESTART_NS_MAX)
        bench.take()
    assert [text[-6:] for text in said] == ["file 1", "file 2"]


def test_slot_that_crashes_five_times_in_a_minute_is_tried_every_half_minute():
    bench = Bench()
    bench.serve()
    for _ in range(4):
        bench.exits(bench.owner(0))
        assert [a.number for a in bench.take(act.DO_SLOT_STATE)] == [SLOT_RESTARTING]
        bench.wait(bench.core.owners[0].restart_ns - bench.now)
        bench.take()
        bench.bring_back(0)
        bench.take()
    bench.exits(bench.owner(0))
    assert [a.number for a in bench.take(act.DO_SLOT_STATE)] == [SLOT_UNAVAILABLE]
    assert bench.core.owners[0].restart_ns == bench.now + CRASHED_RETRY_NS
    bench.wait(CRASHED_RETRY_NS)
    assert kinds(bench.take(act.DO_SPAWN)) == [act.DO_SPAWN]


def test_crashes_that_are_far_apart_never_make_a_slot_unavailable():
    bench = Bench()
    bench.serve()
    for _ in range(12):
        bench.exits(bench.owner(0))
        assert [a.number for a in bench.take(act.DO_SLOT_STATE)] == [SLOT_RESTARTING]
        bench.wait(RESTART_NS_MIN)
        bench.take()
        bench.bring_back(0)
        bench.wait(16 * NS_PER_S)
        bench.core.child_alive(*bench.owner(0))
        bench.core.child_alive(*bench.frontend(0))
        bench.take()


def test_frontend_that_crashes_five_times_stays_out_and_the_last_one_ends_the_server():
    bench = Bench(frontends=2)
    bench.serve()
    for index in (0, 1):
        for _ in range(5):
            bench.exits(bench.frontend(index))
            if bench.core.frontends[index].out:
                break
            bench.wait(bench.core.frontends[index].restart_ns - bench.now)
            bench.take()
            bench.started(index)
        assert bench.core.frontends[index].out
    bench.exits(bench.owner(0), 0)
    assert [a.number for a in bench.take(act.DO_EXIT)] == [1]


def test_restarted_frontend_hears_of_all_slots_before_it_accepts():
    bench = Bench(slots=2, frontends=1)
    bench.serve()
    bench.exits(bench.owner(1), EXIT_BAD_DATA)
    bench.exits(bench.frontend(0))
    bench.wait(RESTART_NS_MIN)
    bench.take()
    bench.started(0)
    actions = bench.take(act.DO_SLOT_STATE, act.DO_LINK, act.DO_ACCEPT)
    assert [(a.kind, a.number) for a in actions if a.kind == act.DO_SLOT_STATE] == [
        (act.DO_SLOT_STATE, SLOT_UP),
        (act.DO_SLOT_STATE, SLOT_UNAVAILABLE),
    ]
    assert kinds(actions)[-1] == act.DO_ACCEPT
    assert kinds(actions).count(act.DO_LINK) == 1


def test_lost_link_is_made_again_at_once_and_both_reports_count_as_one():
    bench = Bench()
    link = [a for a in bench.serve() if a.kind == act.DO_LINK][0]
    bench.wait(2 * NS_PER_S)
    bench.take()
    bench.core.link_lost(*bench.owner(0), 0, link.number, bench.now)
    again = bench.take(act.DO_LINK)
    assert len(again) == 1
    bench.core.link_lost(*bench.frontend(0), 0, link.number, bench.now)
    assert bench.take(act.DO_LINK) == []


def test_link_that_keeps_breaking_is_not_made_in_a_tight_loop():
    bench = Bench()
    link = [a for a in bench.serve() if a.kind == act.DO_LINK][0]
    bench.core.link_lost(*bench.owner(0), 0, link.number, bench.now)
    assert bench.take(act.DO_LINK) == []
    bench.wait(bench.core.next_deadline_ns() - bench.now)
    assert len(bench.take(act.DO_LINK)) == 1


def test_link_of_an_owner_that_exits_is_not_made_again_until_it_is_back():
    bench = Bench()
    link = [a for a in bench.serve() if a.kind == act.DO_LINK][0]
    bench.core.link_lost(*bench.frontend(0), 0, link.number, bench.now)
    bench.exits(bench.owner(0))
    bench.wait(50 * NS_PER_MS)
    assert bench.take(act.DO_LINK) == []


def test_child_that_answers_nothing_is_killed_after_the_hang_timeout():
    bench = Bench(hang_timeout_s=3)
    bench.serve()
    for _ in range(3):
        bench.wait(NS_PER_S)
        bench.core.child_alive(*bench.frontend(0))
        assert bench.take(act.DO_KILL) == []
    bench.wait(NS_PER_S)
    killed = bench.take(act.DO_KILL)
    assert [(a.role, a.index, a.generation) for a in killed] == [bench.owner(0)]
    bench.wait(NS_PER_S)
    assert bench.take(act.DO_KILL) == []


def test_child_that_is_still_starting_has_ten_seconds_however_short_the_hang_timeout():
    bench = Bench(hang_timeout_s=1)
    for _ in range(10):
        bench.wait(NS_PER_S)
        assert bench.take(act.DO_KILL) == []
    bench.wait(NS_PER_S)
    assert len(bench.take(act.DO_KILL)) == 2


def test_hang_timeout_of_zero_kills_nobody():
    bench = Bench(hang_timeout_s=0)
    bench.serve()
    for _ in range(100):
        bench.wait(NS_PER_S)
    assert bench.take(act.DO_KILL) == []


def test_late_wake_up_of_the_supervisor_counts_anew():
    bench = Bench(hang_timeout_s=3)
    bench.serve()
    for _ in range(3):
        bench.wait(NS_PER_S)
    bench.wait(20 * NS_PER_S)
    assert bench.take(act.DO_KILL) == []
    for _ in range(2):
        bench.wait(NS_PER_S)
        assert bench.take(act.DO_KILL) == []
    bench.wait(NS_PER_S)
    assert len(bench.take(act.DO_KILL)) == 2


def test_silent_frontend_holds_no_other_back_until_it_speaks():
    bench = Bench(frontends=2)
    bench.serve()
    for _ in range(3):
        bench.wait(NS_PER_S)
        bench.core.child_alive(*bench.frontend(1))
    shown = [a for a in bench.take(act.DO_SHOW) if a.role == ROLE_FRONTEND]
    assert [(a.index, a.number) for a in shown] == [(0, act.SHOW_LIVE)]
    bench.core.child_alive(*bench.frontend(0))
    assert [a.number for a in bench.take(act.DO_SHOW)] == [act.SHOW_LIVE | act.SHOW_ACCEPTING]


def test_drain_counts_when_all_frontends_have_confirmed_it():
    bench = Bench(frontends=2)
    bench.serve()
    bench.core.drain(True)
    asked = bench.take()
    assert [(a.kind, a.index, a.on) for a in asked] == [(act.DO_DRAIN, 0, True), (act.DO_DRAIN, 1, True)]
    number = asked[0].number
    bench.core.child_drained(0, bench.frontend(0)[2], number)
    assert bench.take() == []
    bench.core.child_drained(1, bench.frontend(1)[2], number)
    assert [(a.kind, a.on) for a in bench.take()] == [(act.DO_DRAINING, True)]
    bench.core.drain(True)
    assert bench.take() == []


def test_restarted_frontend_confirms_the_drain_before_it_accepts():
    bench = Bench()
    bench.serve()
    bench.core.drain(True)
    bench.core.child_drained(0, bench.frontend(0)[2], bench.take()[0].number)
    bench.take()
    bench.exits(bench.frontend(0))
    bench.wait(RESTART_NS_MIN)
    bench.take()
    bench.started(0)
    asked = bench.take()
    assert act.DO_ACCEPT not in kinds(asked)
    drain = [a for a in asked if a.kind == act.DO_DRAIN]
    assert [a.on for a in drain] == [True]
    bench.core.child_drained(0, bench.frontend(0)[2], drain[0].number)
    assert act.DO_ACCEPT in kinds(bench.take())


def test_frontend_that_dies_unconfirmed_does_not_hold_the_drain_up():
    bench = Bench(frontends=2)
    bench.serve()
    bench.core.drain(True)
    bench.core.child_drained(0, bench.frontend(0)[2], bench.take()[0].number)
    bench.exits(bench.frontend(1))
    assert [a.on for a in bench.take(act.DO_DRAINING)] == [True]


def test_late_confirmation_of_an_older_drain_does_not_count():
    bench = Bench()
    bench.serve()
    bench.core.drain(True)
    old = bench.take()[0].number
    bench.core.drain(False)
    bench.core.drain(True)
    new = bench.take(act.DO_DRAIN)[-1].number
    bench.core.child_drained(0, bench.frontend(0)[2], old)
    assert bench.take() == []
    bench.core.child_drained(0, bench.frontend(0)[2], new)
    assert kinds(bench.take()) == [act.DO_DRAINING]


def test_stop_ends_frontends_then_owners_then_the_server():
    bench = Bench()
    bench.serve()
    bench.core.stop(bench.now)
    actions = bench.take()
    assert kinds(actions) == [act.DO_CLOSE_LISTENERS, act.DO_STOP]
    assert actions[1].role == ROLE_FRONTEND
    bench.exits(bench.frontend(0), 0)
    assert [a.role for a in bench.take(act.DO_STOP)] == [ROLE_OWNER]
    bench.exits(bench.owner(0), 0)
    assert [a.number for a in bench.take(act.DO_EXIT)] == [0]


def test_stop_does_not_wait_for_children_that_do_not_end():
    bench = Bench()
    bench.serve()
    bench.core.stop(bench.now)
    bench.take()
    began = bench.now
    bench.wait(bench.core.next_deadline_ns() - bench.now)
    while bench.now < began + STOP_OWNERS_NS:
        bench.wait(bench.core.next_deadline_ns() - bench.now)
    assert [a.role for a in bench.take(act.DO_STOP)] == [ROLE_OWNER]
    while bench.now < began + STOP_KILL_NS:
        bench.wait(bench.core.next_deadline_ns() - bench.now)
    assert len(bench.take(act.DO_KILL)) == 2
    bench.exits(bench.frontend(0))
    bench.exits(bench.owner(0))
    assert [a.number for a in bench.take(act.DO_EXIT)] == [0]


def test_stop_while_starting_exits_with_zero():
    bench = Bench()
    bench.take()
    bench.core.stop(bench.now)
    bench.exits(bench.owner(0), 0)
    bench.exits(bench.frontend(0), 0)
    assert [a.number for a in bench.take(act.DO_EXIT)] == [0]
