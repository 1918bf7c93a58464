"""The rules of the multi-owner reserve hold in every state of the model, and each rule is needed.

Knows the model only. How the cores keep the rules is the simulator's business.
"""

import pytest

from tests.model.reserve_explorer import CONFIGS, Explored, explore
from tests.model.reserve_state import Config, Rules

STATES_MAX = 200_000
BY_NAME: dict[str, Config] = {config.name: config for config in CONFIGS}
FALSE_TIMED_OUT = "TIMED_OUT, but there never was an instant without a job for it"


def explored_without(rule: str, name: str) -> Explored:
    return explore(BY_NAME[name]._replace(rules=Rules(**{rule: False})), STATES_MAX)


@pytest.mark.parametrize("name", list(BY_NAME))
def test_the_rules_hold_in_every_state(name: str) -> None:
    found = explore(BY_NAME[name], STATES_MAX)
    assert found.violation == "", "\n".join(found.trace)
    assert found.complete
    assert found.quiet > 1


@pytest.mark.parametrize("name", ["two-nowait-one-job", "wide-and-narrow"])
def test_without_withholding_there_is_a_false_timed_out(name: str) -> None:
    assert FALSE_TIMED_OUT in explored_without("withhold", name).violation


def test_a_job_deleted_between_two_last_words_makes_a_false_timed_out_if_it_is_not_asked_again() -> None:
    found = explored_without("lost_job_asks_again", "delete-under-hold")
    assert FALSE_TIMED_OUT in found.violation
    assert any("delete" in line for line in found.trace)


def test_last_before_all_have_answered_ask_makes_a_false_timed_out() -> None:
    assert FALSE_TIMED_OUT in explored_without("last_after_all_asks", "one-nowait-late-put").violation


@pytest.mark.parametrize("name", ["two-in-turn", "wide-and-narrow"])
def test_without_asking_the_holders_link_a_reserve_that_follows_another_sees_the_wrong_order(name: str) -> None:
    assert "alone, was granted" in explored_without("sync_holds", name).violation


def test_a_violation_comes_with_the_steps_that_lead_to_it() -> None:
    trace = explored_without("withhold", "wide-and-narrow").trace
    assert trace[-1].startswith("VIOLATION")
    assert any("RESERVE_NOWAIT" in line for line in trace)


@pytest.mark.parametrize("name", ["take-back", "take-back-and-late-put"])
def test_last_that_finds_a_hold_taken_back_may_be_answered_as_well(name: str) -> None:
    found = explored_without("last_is_silent_after_offer", name)
    assert (found.violation, found.complete) == ("", True)
