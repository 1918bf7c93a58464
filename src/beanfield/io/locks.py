"""POSIX locks of others: who holds one, without taking it; and holding an existing one while a tool reads.

A lock file is never made here: what is only read keeps every name and byte it has. Closing any descriptor of a lock
file gives back the locks of this process on it, so a file that is held here is not looked at through `lock_holder`.
"""

import errno
import fcntl
import os
import struct

# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("@hhqqi4x")


def lock_holder(path: str) -> int:
    """The process that holds a lock on the file; 0: nobody, or there is no such file; -1: not of this machine."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return 0 if kind == fcntl.F_UNLCK else pid or -1


def hold_lock(path: str) -> int | None:
    """Takes the lock: its descriptor. -1: there is no such file, or it may not be written here (then nobody who may
    write here holds it). None: another process has it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return None if lock_holder(path) else -1
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return None
        raise
    return descriptor
