"""What a server is to be, from the options and the cores there are."""

import pytest

from beanfield.cli.options import parse_serve
from beanfield.supervisor.plan import ServerPlan


@pytest.mark.parametrize(
    ("arguments", "cores", "slots", "frontends", "combined"),
    [
        ([], 1, 1, 1, True),
        ([], 2, 1, 1, True),
        ([], 3, 1, 2, False),
        ([], 4, 1, 3, False),
        ([], 16, 4, 12, False),
        ([], 64, 16, 48, False),
        (["--slots", "1"], 2, 1, 1, True),
        (["--slots", "2"], 2, 2, 1, False),
        (["--frontends", "1"], 2, 1, 1, False),
        (["--frontends", "2"], 1, 1, 2, False),
        (["--frontends", "0"], 16, 1, 1, True),
        (["--slots", "4", "--frontends", "2"], 2, 4, 2, False),
        (["--partitions", "1"], 64, 1, 63, False),
    ],
)
def test_the_shape_follows_options_and_cores(
    arguments: list[str], cores: int, slots: int, frontends: int, combined: bool
) -> None:
    plan = ServerPlan(parse_serve(arguments, {}, "beanfield serve"), cores)
    assert (plan.slots, plan.frontends, plan.combined) == (slots, frontends, combined)
