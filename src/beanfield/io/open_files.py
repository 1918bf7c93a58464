"""The open descriptors of one slot directory: few, safe between threads, and never all taken by others.

A log may have any number of segments and body files, so those that are not in use are closed when there are many. A
file that was written stays open until it is synced: only the descriptor through which a write went is sure to hear of
its failure. Two descriptors are kept in hand, for the files that a log must open when clients have taken all others.
Knows no records and no directory: the opener is given.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from typing import Final

IDLE_MAX: Final = 16  # open and not in use; then all of these are closed
KEPT: Final = 2  # as many as a change of segments needs at once


class OpenFile:
    """One descriptor: who uses it, and whether a sync has followed the last write."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.users = 0
        self.writes = 0
        self.writes_synced = 0
        self.doomed = False  # its file is gone: closed with its last user

    def is_idle(self) -> bool:
        return self.users == 0 and self.writes == self.writes_synced


class OpenFiles:
    """By name. Every method may be called from any thread."""

    def __init__(self, opener: Callable[[str], int], idle_max: int = IDLE_MAX) -> None:
        self._opener = opener
        self._idle_max = idle_max
        self._files: dict[str, OpenFile] = {}
        self._lock = threading.Lock()
        self._kept: list[int] = []
        self._keep()

    def take(self, name: str, writing: bool = False) -> OpenFile:
        """Opened if need be; not closed before it is given back. OSError of the opener."""
        with self._lock:
            entry = self._files.get(name)
            if entry is None:
                self._close_idle()
                entry = OpenFile(self.open_with(lambda: self._opener(name)))
                self._files[name] = entry
            entry.users += 1
            if writing:
                entry.writes += 1
        return entry

    def give_back(self, entry: OpenFile, writes_synced: int = 0) -> None:
        """`writes_synced`: a sync is done, and so many writes had been begun before it."""
        with self._lock:
            entry.users -= 1
            entry.writes_synced = max(entry.writes_synced, writes_synced)
            if entry.doomed and entry.users == 0:
                self._close(entry)

    @contextlib.contextmanager
    def using(self, name: str) -> Iterator[int]:
        """The descriptor, for as long as the block takes."""
        entry = self.take(name)
        try:
            yield entry.file
        finally:
            self.give_back(entry)

    def add(self, name: str, file: int) -> None:
        """A file that was just made; it counts as written."""
        with self._lock:
            self._close_idle()
            entry = OpenFile(file)
            entry.writes = 1
            self._files[name] = entry

    def renamed(self, old: str, new: str) -> None:
        """What was open as `new` is replaced."""
        with self._lock:
            self._close(self._files.pop(new, None))
            if old in self._files:
                self._files[new] = self._files.pop(old)

    def removed(self, name: str) -> None:
        with self._lock:
            self._close(self._files.pop(name, None))

    def close(self) -> None:
        """All of them, and those in hand."""
        with self._lock:
            for entry in self._files.values():
                os.close(entry.file)
            self._files.clear()
            for file in self._kept:
                os.close(file)
            self._kept.clear()

    def count(self) -> int:
        return len(self._files)

    def open_with(self, make: Callable[[], int]) -> int:
        """What `make` opens; where no descriptor is left, with one of those in hand."""
        while True:
            try:
                return make()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._kept:
                    raise
                os.close(self._kept.pop())

    def _close_idle(self) -> None:
        idle = [name for name, entry in self._files.items() if entry.is_idle()]
        if len(idle) >= self._idle_max:
            for name in idle:
                self._close(self._files.pop(name))

    def _close(self, entry: OpenFile | None) -> None:
        if entry is None:
            return
        if entry.users > 0:
            entry.doomed = True
            return
        os.close(entry.file)
        self._keep()

    def _keep(self) -> None:
        while len(self._kept) < KEPT:
            try:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return
