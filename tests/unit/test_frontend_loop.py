"""The frontend's loop tells its core what only a loop can know."""

from types import SimpleNamespace

import pytest

from beanfield.frontend.main import FrontendLoop


@pytest.mark.parametrize("full", [True, False])
def test_the_core_hears_whether_the_poll_left_something_behind(full: bool) -> None:
    loop = FrontendLoop.__new__(FrontendLoop)
    core = SimpleNamespace(poll_full=not full)
    loop.__dict__.update(core=core, reactor=SimpleNamespace(full=full, now_ns=lambda: 0), _watched={}, _accepting=False)
    loop.on_ready([])
    assert core.poll_full is full
