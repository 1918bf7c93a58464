"""The supervisor's decisions without frontends: the only owner is also the door for clients."""

from beanfield.constants import RESTART_NS_MIN
from beanfield.ipc.frames import ROLE_OWNER
from beanfield.supervisor import core_actions as act
from tests.unit.test_supervisor_core import Bench, kinds


def test_without_frontends_the_owner_accepts_once_it_serves_and_again_after_a_restart():
    bench = Bench(frontends=0)
    actions = bench.serve()
    assert [(action.role, action.index) for action in actions if action.kind == act.DO_ACCEPT] == [(ROLE_OWNER, 0)]
    assert not [action for action in actions if action.kind == act.DO_LINK]
    bench.exits(bench.owner(0))
    assert not bench.take(act.DO_ACCEPT)
    bench.wait(RESTART_NS_MIN)
    bench.take()
    bench.bring_back(0)
    assert [action.role for action in bench.take(act.DO_ACCEPT)] == [ROLE_OWNER]


def test_without_frontends_draining_is_confirmed_by_the_owner_and_kept_over_its_restart():
    bench = Bench(frontends=0)
    bench.serve()
    bench.core.drain(True)
    (ask,) = bench.take(act.DO_DRAIN)
    assert (ask.role, ask.index, ask.on) == (ROLE_OWNER, 0, True)
    bench.core.child_drained(0, bench.owner(0)[2], ask.number)
    assert [action.on for action in bench.take(act.DO_DRAINING)] == [True]
    bench.exits(bench.owner(0))
    bench.wait(RESTART_NS_MIN)
    bench.take()
    bench.bring_back(0)
    actions = bench.take()
    assert act.DO_ACCEPT not in kinds(actions)
    (ask,) = [action for action in actions if action.kind == act.DO_DRAIN]
    bench.core.child_drained(0, bench.owner(0)[2], ask.number)
    assert [action.role for action in bench.take(act.DO_ACCEPT)] == [ROLE_OWNER]


def test_without_frontends_stop_goes_to_the_owner_at_once():
    bench = Bench(frontends=0)
    bench.serve()
    bench.core.stop(bench.now)
    assert [(action.role, action.index) for action in bench.take(act.DO_STOP)] == [(ROLE_OWNER, 0)]
