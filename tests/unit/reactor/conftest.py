"""Runs each test of this directory on every reactor of the build, and sees that no descriptor is left over."""

from collections.abc import Iterator

import pytest

from tests.unit.reactor.bench import Bench, available, run_bench


@pytest.fixture(params=available())
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from run_bench(request.param)


@pytest.fixture(params=[name for name in available() if name != "selectors"])
def epoll_bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from run_bench(request.param)
