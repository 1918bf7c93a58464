"""A thread that syncs one file at a time: what the answers of `-f 0` wait for.

    thread.begin(file)    returns at once
    ...                   the eventfd is told when it is done; others may tell it too
    thread.take()         the errno, 0 for none; NOT_DONE: not yet

The class here is the twin of _sync_thread.pyx, which is taken where it was built. A file that is being synced must stay
open. It knows no names and no log.
"""

import errno
import os
import queue
import threading
from typing import Final

NOT_DONE: Final = -1


class PureSyncThread:
    """With the interpreter's threads. `descriptor` is an eventfd."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._result = NOT_DONE
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="log sync", daemon=True)
        self._thread.start()

    def begin(self, file: int) -> None:
        """Sync this file. Not before the one before is taken."""
        assert file >= 0 and not self._busy
        self._busy = True
        self._asked.put(file)

    def take(self) -> int:
        """The errno of the sync that was begun, once; 0 when it went well; NOT_DONE."""
        result = self._result
        if result != NOT_DONE:
            self._result = NOT_DONE
            self._busy = False
        return result

    def stop(self) -> None:
        """Ends the thread. Nothing is under way."""
        assert not self._busy
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            file = self._asked.get()
            if file is None:
                return
            result = 0
            try:
                os.fdatasync(file)
            except OSError as error:
                result = error.errno or errno.EIO
            self._result = result
            os.eventfd_write(self._descriptor, 1)


try:
    from beanfield.io._sync_thread import SyncThread
except ImportError:
    SyncThread = PureSyncThread  # type: ignore[assignment, misc]

__all__ = ["NOT_DONE", "PureSyncThread", "SyncThread"]
