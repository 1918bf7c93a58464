"""A real server whose owners meet a faulty disk, without a hook in the server.

The children of a server import its library for process titles by name; here a module of that name stands before it. In
an owner it puts a faulty disk in the place of the real one: a subclass that fails while files say so. Everything else
of the process is as it is.
"""

from pathlib import Path

from tests.processes.server import program_environment

STAND_IN = """
import os, sys, time

stand_in = sys.modules.pop(__name__)
place = os.path.dirname(__file__)
at = sys.path.index(place)
del sys.path[at]
import setproctitle as real
sys.path.insert(at, place)
sys.modules[__name__] = stand_in

FLAGS = {flags!r}


def setproctitle(title):
    real.setproctitle(title)
    if "owner" in title:
        make_faulty()


def make_faulty():
    from beanfield.io import slot_log
    from beanfield.wal.disk import EIO, ENOSPC, DiskFault

    class FaultyDisk(slot_log.RealDisk):
        def said(self, flag):
            return os.path.exists(os.path.join(FLAGS, flag + "-" + os.path.basename(self.path)))

        def create(self, name, length):
            if length > 0 and self.said("full"):
                raise DiskFault(ENOSPC, "allocate", name)
            super().create(name, length)

        def write(self, name, offset, data):
            if self.said("short-write"):
                super().write(name, offset, data[: len(data) // 2])
                raise DiskFault(EIO, "write", name)
            if self.said("write"):
                raise DiskFault(EIO, "write", name)
            super().write(name, offset, data)

        def begin_sync(self, name):
            if self.said("stall"):
                return -1
            file = super().begin_sync(name)
            return os.pipe()[0] if self.said("sync") else file  # of a pipe nothing can be synced

        def sync(self, name):
            while self.said("stall"):
                time.sleep(0.01)
            if self.said("sync"):
                raise DiskFault(EIO, "sync", name)
            super().sync(name)

    slot_log.RealDisk = FaultyDisk
"""


class FaultyDisks:
    """Says what fails now, for one slot: "full", "write", "short-write", "sync", "stall"."""

    def __init__(self, folder: Path) -> None:
        self._flags = folder / "flags"
        self._flags.mkdir()
        (folder / "setproctitle.py").write_text(STAND_IN.format(flags=str(self._flags)))
        self.environment = {"PYTHONPATH": f"{folder}:{program_environment()['PYTHONPATH']}"}

    def fail(self, what: str, slot: int) -> None:
        (self._flags / f"{what}-{slot:03d}").touch()

    def mend(self, what: str, slot: int) -> None:
        (self._flags / f"{what}-{slot:03d}").unlink()
