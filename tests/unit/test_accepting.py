"""Which frontend takes a waiting connection."""

from beanfield.constants import ACCEPT_ANYWAY_NS, ACCEPT_DECLINE_NS, ACCEPT_EXHAUSTED_NS
from beanfield.frontend.accepting import AcceptPolicy

NOW = 5_000_000_000


def test_frontend_with_fewest_connections_accepts():
    policy = AcceptPolicy()
    assert policy.takes(3, 3, NOW)
    assert policy.takes(0, 1 << 62, NOW)
    assert not policy.takes(4, 3, NOW)


def test_declining_takes_the_listeners_away_for_a_moment():
    policy = AcceptPolicy()
    policy.takes(4, 3, NOW)
    assert policy.away_until_ns == NOW + ACCEPT_DECLINE_NS


def test_connection_that_nobody_takes_is_taken_after_a_while():
    policy = AcceptPolicy()
    now = NOW
    while not policy.takes(4, 3, now):
        assert now < NOW + ACCEPT_ANYWAY_NS
        now = policy.away_until_ns
    assert now >= NOW + ACCEPT_ANYWAY_NS
    # The patience of one connection is not another's.
    assert not policy.takes(5, 3, now)


def test_patience_begins_anew_when_the_connection_was_served_elsewhere():
    policy = AcceptPolicy()
    policy.takes(4, 3, NOW)
    policy.nothing_waits()
    assert not policy.takes(4, 3, NOW + ACCEPT_ANYWAY_NS)


def test_without_room_the_listeners_stay_away_longer_until_an_attempt_succeeds():
    policy = AcceptPolicy()
    assert policy.takes(3, 3, NOW)
    policy.no_room(NOW)
    assert policy.exhausted and policy.away_until_ns == NOW + ACCEPT_EXHAUSTED_NS
    policy.accepted()
    assert not policy.exhausted
