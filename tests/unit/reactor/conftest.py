"""Runs each test of this directory on every reactor of the build, and sees that no descriptor is left over."""

from collections.abc import Iterator

import pytest

from tests.unit.reactor.bench import BatchCore, Bench, RecordingCore, available, run_bench

CORES = {"one by one": RecordingCore, "batches": BatchCore}


@pytest.fixture(params=CORES)
def core(request: pytest.FixtureRequest) -> RecordingCore:
    made: RecordingCore = CORES[request.param]()
    return made


@pytest.fixture(params=available())
def bench(request: pytest.FixtureRequest, core: RecordingCore) -> Iterator[Bench]:
    yield from run_bench(request.param, core)


@pytest.fixture(params=[name for name in available() if name != "selectors"])
def epoll_bench(request: pytest.FixtureRequest, core: RecordingCore) -> Iterator[Bench]:
    yield from run_bench(request.param, core)


@pytest.fixture(params=available())
def one_by_one(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """For what holds between two calls of `client_received`: a batch has been received as a whole."""
    yield from run_bench(request.param, RecordingCore())
