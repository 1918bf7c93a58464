"""The data root: the directory of -b, with the server's lock, its topology, and one directory for each slot.

    DIR/lock             held by the server (its supervisor), or by an offline tool that writes
    DIR/topology.json    routing.py; its presence is what makes the directory a root
    DIR/slots/<nnn>/     a slot's own directory: `identity` is written here, all else by the slot's owner

A root is made in an order that a crash cannot turn into something else: slot directories with their identities,
synced, then topology.json under a temporary name, synced, renamed, synced. What such a crash leaves counts as empty,
and is made anew. Every other fault is a RootFault that names the file and says what to do; by then not one byte has
changed, the lock included: it is only made in a directory that is a root or may become one.

This file knows directories, locks and identities; it reads no log.
"""

import errno
import fcntl
import os
import re
from collections.abc import Callable
from typing import Self

from beanfield.constants import EXIT_BAD_DATA, EXIT_DISK, TOPOLOGY_BYTES_MAX
from beanfield.routing import Topology, TopologyError, parse_topology
from beanfield.wal.identity import encode_identity, identity_fault
from beanfield.wal.segments import IDENTITY_NAME, LOCK_NAME, TEMPORARY_SUFFIX

TOPOLOGY_NAME = "topology.json"
SLOTS_NAME = "slots"
EXIT_LOCK = 10  # beanstalkd's
_BINLOG = re.compile(r"binlog\.[0-9]*\Z")
_LOST_AND_FOUND = "lost+found"  # in the root of a file system; perhaps not readable
_SLOT = re.compile(r"[0-9]{3}\Z")
_IDENTITY_BYTES_MAX = 4096
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_UNCHANGED = "nothing was changed"


class RootFault(Exception):
    """The directory cannot be used as it is: which file, why, and what to do."""

    def __init__(self, exit_code: int, message: str, reason: str = "") -> None:
        super().__init__(f"{message}: {reason}" if reason else message)
        self.exit_code = exit_code
        self.message = message
        self.reason = reason  # of a message that must be beanstalkd's, word for word


class Root:
    """A data root that is locked for as long as this object is open."""

    def __init__(self, path: str, topology: Topology, lock_descriptor: int) -> None:
        self.path = path
        self.topology = topology
        self._lock_descriptor = lock_descriptor

    def slot_path(self, slot: int) -> str:
        return slot_path(self.path, slot)

    def close(self) -> None:
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---------------------------------------------------------------- for servers and tools
def open_root(path: str) -> Root:
    """An existing root, checked and locked. Raises RootFault."""
    lock_descriptor = _lock(path, must_be_empty=False)
    try:
        topology = read_topology(path)
        if topology is None:
            raise _bad(path, f"has no {TOPOLOGY_NAME}: it is no data root", "give the directory of -b")
        return Root(path, topology, lock_descriptor)
    except BaseException:
        os.close(lock_descriptor)
        raise


def create_root(path: str, topology: Topology) -> Root:
    """A new root in an existing directory that counts as empty, locked. Raises RootFault."""
    root = begin_root(path, topology)
    try:
        finish_root(root)
    except BaseException:
        root.close()
        raise
    return root


def begin_root(path: str, topology: Topology) -> Root:
    """A new root, locked, but without topology.json: until `finish_root`, no server and no tool takes it for one.

    For what fills a root before anybody may use it; an unfinished one is refused by all, and has to be removed.
    """
    lock_descriptor = _lock(path, must_be_empty=True)
    try:
        if read_topology(path) is not None:
            raise _bad(path, "is a data root already", "give an empty directory")
        try:
            _make_slots(path, topology)
        except OSError as error:
            raise _disk(path, error) from error
        return Root(path, topology, lock_descriptor)
    except BaseException:
        os.close(lock_descriptor)
        raise


def finish_root(root: Root) -> None:
    """Makes what begin_root began a root, durably. Everything else in it is durable already."""
    try:
        _publish(root.path, root.topology)
    except OSError as error:
        raise _disk(root.path, error) from error


def open_or_create_root(path: str, wanted: Topology, check: Callable[[Topology], None]) -> Root:
    """What a server does: an existing root as it is, if `check` raises nothing, or a new one with what is wanted."""
    lock_descriptor = _lock(path, must_be_empty=False)
    try:
        topology = read_topology(path)
        if topology is not None:
            check(topology)
        else:
            topology = wanted
            try:
                _make(path, topology)
            except OSError as error:
                raise _disk(path, error) from error
        return Root(path, topology, lock_descriptor)
    except BaseException:
        os.close(lock_descriptor)
        raise


def read_topology(path: str) -> Topology | None:
    """Reads and checks without a lock, and writes nothing. None: the directory counts as empty. Raises RootFault."""
    try:
        names = sorted(os.listdir(path))
        for name in names:
            if _BINLOG.match(name):
                raise _bad(
                    os.path.join(path, name),
                    "is a log of beanstalkd, which this server does not write",
                    f"`beanfield import {path} --to NEW_DIR` copies its jobs into a new data root",
                )
        if TOPOLOGY_NAME not in names:
            _check_empty(path, names)
            return None
        topology = _parse(os.path.join(path, TOPOLOGY_NAME))
        _check_slots(path, topology)
        return topology
    except OSError as error:
        raise _disk(path, error) from error


def slot_path(path: str, slot: int) -> str:
    return os.path.join(path, SLOTS_NAME, f"{slot:03d}")


# ---------------------------------------------------------------- the lock
def _lock(path: str, must_be_empty: bool) -> int:
    """The descriptor of the lock, taken. A POSIX lock: it ends with the process, however that ends."""
    name = os.path.join(path, LOCK_NAME)
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        if not os.path.lexists(name) and os.path.isdir(path):
            # A directory that is refused gets no lock either.
            if read_topology(path) is not None and must_be_empty:
                raise _bad(path, "is a data root already", "give an empty directory")
            flags |= os.O_CREAT
        descriptor = os.open(name, flags, _FILE_MODE)
    except OSError as error:
        raise RootFault(EXIT_LOCK, f"failed to lock wal dir {path}", f"{path}: {error.strerror}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        reason = "another server has it" if error.errno in (errno.EACCES, errno.EAGAIN) else error.strerror
        raise RootFault(EXIT_LOCK, f"failed to lock wal dir {path}", f"{name}: {reason}") from error
    return descriptor


# ---------------------------------------------------------------- checks
def _parse(name: str) -> Topology:
    with open(name, "rb") as file:
        text = file.read(TOPOLOGY_BYTES_MAX + 1)
    try:
        return parse_topology(text)
    except TopologyError as error:
        raise _bad(name, str(error), "put back the file that the server made") from error


def _check_empty(path: str, names: list[str]) -> None:
    """Without a topology only what an interrupted creation leaves, and empty directories, may be there."""
    for name in names:
        whole = os.path.join(path, name)
        if name in (LOCK_NAME, _LOST_AND_FOUND) or name.endswith(TEMPORARY_SUFFIX):
            continue
        if not os.path.isdir(whole) or os.path.islink(whole):
            raise _bad(whole, f"is there, but no {TOPOLOGY_NAME}: this is no data root", "give an empty directory")
        for inner in sorted(os.listdir(whole)):
            slot = os.path.join(whole, inner)
            begun = name == SLOTS_NAME and os.path.isdir(slot) and all(_is_begun(entry) for entry in os.listdir(slot))
            if not begun:
                raise _bad(
                    slot,
                    f"is there, but {os.path.join(path, TOPOLOGY_NAME)} is missing",
                    f"put back the {TOPOLOGY_NAME} that the server made, or give an empty directory",
                )


def _is_begun(name: str) -> bool:
    """May lie in a slot directory that no owner has ever opened."""
    return name in (IDENTITY_NAME, LOCK_NAME) or name.endswith(TEMPORARY_SUFFIX)


def _check_slots(path: str, topology: Topology) -> None:
    slots = os.path.join(path, SLOTS_NAME)
    if not os.path.isdir(slots):
        raise _bad(slots, "is missing", "put back the directory, or restore the whole data root")
    for slot in range(int(topology.slots)):
        directory = slot_path(path, slot)
        if not os.path.isdir(directory):
            raise _bad(directory, "is missing", "put back the directory, or restore the whole data root")
        identity = os.path.join(directory, IDENTITY_NAME)
        try:
            with open(identity, "rb") as file:
                found = file.read(_IDENTITY_BYTES_MAX)
        except FileNotFoundError as error:
            raise _bad(identity, "is missing", "is this a slot's directory? put back the one that was here") from error
        fault = identity_fault(found, topology.cluster_id, slot, topology.fingerprint)
        if fault != "":
            raise _bad(identity, fault, "put back the directory that was here")
    for name in sorted(os.listdir(slots)):
        if _SLOT.match(name) and int(name) >= topology.slots:
            raise _bad(
                os.path.join(slots, name),
                f"belongs to no slot: {TOPOLOGY_NAME} says {topology.slots} slot{'' if topology.slots == 1 else 's'}",
                "put back what was here",
            )


# ---------------------------------------------------------------- making
def _make(path: str, topology: Topology) -> None:
    _make_slots(path, topology)
    _publish(path, topology)


def _make_slots(path: str, topology: Topology) -> None:
    slots = os.path.join(path, SLOTS_NAME)
    _clear(path, slots)
    os.mkdir(slots, _DIRECTORY_MODE)
    for slot in range(int(topology.slots)):
        directory = slot_path(path, slot)
        os.mkdir(directory, _DIRECTORY_MODE)
        text = encode_identity(topology.cluster_id, slot, topology.fingerprint)
        _write(os.path.join(directory, IDENTITY_NAME), text)
        _sync_directory(directory)
    _sync_directory(slots)
    _sync_directory(path)


def _publish(path: str, topology: Topology) -> None:
    final = os.path.join(path, TOPOLOGY_NAME)
    _write(final + TEMPORARY_SUFFIX, topology.canonical_json() + b"\n")
    os.rename(final + TEMPORARY_SUFFIX, final)
    _sync_directory(path)


def _clear(path: str, slots: str) -> None:
    """Removes what an interrupted creation has left; read_topology has seen that it is nothing else."""
    temporary = os.path.join(path, TOPOLOGY_NAME + TEMPORARY_SUFFIX)
    if os.path.lexists(temporary):
        os.unlink(temporary)
    if not os.path.isdir(slots):
        return
    for name in os.listdir(slots):
        directory = os.path.join(slots, name)
        for inner in os.listdir(directory):
            os.unlink(os.path.join(directory, inner))
        os.rmdir(directory)
    os.rmdir(slots)


def _write(name: str, data: bytes) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _bad(name: str, fault: str, advice: str) -> RootFault:
    return RootFault(EXIT_BAD_DATA, f"{name}: {fault}; {_UNCHANGED}; {advice}")


def _disk(path: str, error: OSError) -> RootFault:
    return RootFault(EXIT_DISK, f"{error.filename or path}: {error.strerror}")
