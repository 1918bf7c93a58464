"""beanstalkd's binlog directory, only read, under beanstalkd's own lock where it can be taken.

beanstalkd holds a POSIX write lock on `lock` for its life and never removes the file. It is taken here for as long as
the source is open. It is not made: without it no beanstalkd has ever run here, or the directory is a copy.
"""

import os
import re
from typing import Final, Self

from beanfield.constants import EXIT_BAD_DATA
from beanfield.io.locks import hold_lock, lock_holder
from beanfield.io.root import EXIT_LOCK, RootFault
from beanfield.offline.binlog import file_name
from beanfield.offline.binlog_records import Window

_NAME = re.compile(r"binlog\.([1-9][0-9]{0,9})")
_LOCK = "lock"


class BinlogSource:
    """A directory with at least one binlog. Raises RootFault."""

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self._file = -1
        self._open_number = 0
        lock = os.path.join(path, _LOCK)
        try:
            names = sorted(os.listdir(path))
            held = hold_lock(lock)
        except OSError as error:
            raise RootFault(EXIT_BAD_DATA, f"{error.filename or path}: {error.strerror}") from error
        if held is None:
            pid = lock_holder(lock)
            who = f"process {pid}" if pid > 0 else "another process"
            raise RootFault(EXIT_LOCK, f"{path}: {who} has it locked: a beanstalkd runs on it; stop that first")
        self._lock = held
        self.strangers: Final[list[str]] = []  # names that look like a binlog's, and that beanstalkd does not read
        numbers = []
        for name in names:
            match = _NAME.fullmatch(name)
            if match and os.path.isfile(os.path.join(path, name)):
                numbers.append(int(match[1]))
            elif name.startswith("binlog"):
                self.strangers.append(name)
        self.numbers: Final = sorted(numbers)
        if not numbers:
            self.close()
            raise RootFault(EXIT_BAD_DATA, f"{path}: has no binlog.N: it is no directory of beanstalkd's -b")

    def size(self, number: int) -> int:
        return os.stat(self._name(number)).st_size

    def window(self, number: int) -> Window:
        return Window(self.size(number), lambda offset, length: self.read(number, offset, length))

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Shorter only at the end of the file. Raises OSError."""
        if self._open_number != number:
            self._close_file()
            self._file = os.open(self._name(number), os.O_RDONLY | os.O_CLOEXEC)
            self._open_number = number
        pieces = []
        while length > 0:
            piece = os.pread(self._file, length, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._close_file()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._open_number = 0

    def _name(self, number: int) -> str:
        return os.path.join(self.path, file_name(number))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
