"""The thread for syncs, native and pure: each file it is given is synced once and told, errors are numbers."""

import errno
import gc
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanfield.build import BUILD
from beanfield.io import sync_thread
from beanfield.io.sync_thread import NOT_DONE, PureSyncThread, SyncThread


class Bench:
    """A thread and the eventfd that it tells."""

    def __init__(self, kind: type[SyncThread] | type[PureSyncThread]) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.thread = kind(self.descriptor)

    def wait(self) -> int:
        """Until it tells; how often it has told."""
        assert select.select([self.descriptor], [], [], 30)[0]
        return os.eventfd_read(self.descriptor)

    def sync(self, file: int) -> int:
        self.thread.begin(file)
        assert self.wait() == 1
        return self.thread.take()


@pytest.fixture(params=["built", "pure"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(SyncThread if request.param == "built" else PureSyncThread)
    yield made
    made.thread.stop()
    os.close(made.descriptor)


def test_the_compiled_build_has_the_native_one() -> None:
    native = sync_thread.SyncThread is not PureSyncThread
    assert native == (BUILD == "compiled")


def test_one_sync_after_the_other(bench: Bench, tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        for _ in range(100):
            file.write(b"x")
            file.flush()
            assert bench.sync(file.fileno()) == 0
            assert bench.thread.take() == NOT_DONE


def test_nothing_is_told_before_it_is_asked(bench: Bench) -> None:
    assert bench.thread.take() == NOT_DONE
    assert not select.select([bench.descriptor], [], [], 0)[0]


def test_an_error_is_a_number_and_the_thread_goes_on(bench: Bench, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    assert bench.sync(reader) == errno.EINVAL
    os.close(reader)
    os.close(writer)
    assert bench.sync(reader) == errno.EBADF
    with open(tmp_path / "file", "wb") as file:
        assert bench.sync(file.fileno()) == 0


def test_a_second_file_before_the_first_is_taken_is_a_bug(bench: Bench, tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        bench.thread.begin(file.fileno())
        with pytest.raises(AssertionError):
            bench.thread.begin(file.fileno())
        with pytest.raises(AssertionError):
            bench.thread.stop()
        bench.wait()
        assert bench.thread.take() == 0


def threads() -> list[str]:
    """The native ones there are, once those of tests before have gone: a joined thread may still be listed."""
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text() == "log sync\n":
                found.append(task.name)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def wait_for_the_end_of(number: str) -> None:
    until = time.monotonic() + 30
    while Path(f"/proc/self/task/{number}").exists():
        assert time.monotonic() < until
        time.sleep(0.001)


if BUILD == "compiled":  # of the twin's thread the interpreter takes care

    def test_signals_are_left_to_the_other_threads() -> None:
        native = Bench(SyncThread)
        (number,) = threads()
        status = Path(f"/proc/self/task/{number}/status").read_text().splitlines()
        mask = int(next(line for line in status if line.startswith("SigBlk")).split()[1], 16)
        blockable = 0x7FFFFFFF & ~(1 << 8) & ~(1 << 18)  # of the classic ones all but KILL and STOP
        assert mask & blockable == blockable
        native.thread.stop()
        os.close(native.descriptor)

    def test_one_that_is_let_go_of_ends() -> None:
        native = Bench(SyncThread)
        (number,) = threads()
        descriptor = native.descriptor
        del native
        gc.collect()
        wait_for_the_end_of(number)
        os.close(descriptor)

    def test_one_that_is_stopped_takes_nothing_more() -> None:
        native = Bench(SyncThread)
        native.thread.stop()
        for use in (lambda: native.thread.begin(0), native.thread.take, native.thread.stop):
            with pytest.raises(AssertionError):
                use()
        os.close(native.descriptor)
