"""Reaching into the links of a running server, which have no names: a duplicate of a process's descriptor.

Works for processes below the caller's own (pidfd_getfd). Which socket belongs to which pair is asked of the kernel
(sock_diag): every socket of a pair knows the inode of its peer.
"""

import ctypes
import os
import socket
import struct
from pathlib import Path
from typing import Final

from tests.processes.load import socket_inodes
from tests.processes.server import Server, wait_for

PIDFD_GETFD: Final = 438  # the same number on all architectures
NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST_DUMP: Final = 0x301
NLMSG_DONE: Final = 3
UDIAG_SHOW_PEER: Final = 4
UNIX_DIAG_PEER: Final = 2
ALL_STATES: Final = 0xFFFFFFFF


def cut_link(server: Server, slot: int, frontend: int) -> None:
    """Shut the link down in both directions; both ends live."""
    with link_end(server, slot, frontend) as end:
        end.shutdown(socket.SHUT_RDWR)


def link_end(server: Server, slot: int, frontend: int) -> socket.socket:
    """A duplicate of the owner's end of a link. What is sent on it comes from the owner, as the frontend sees it."""
    return _end_between(server.child("owner", slot).pid, server.child("frontend", frontend).pid)


def frontend_end(server: Server, slot: int, frontend: int) -> socket.socket:
    """A duplicate of the frontend's end."""
    return _end_between(server.child("frontend", frontend).pid, server.child("owner", slot).pid)


def _end_between(pid: int, peer_pid: int) -> socket.socket:
    def found() -> int:
        peers = _peers()
        theirs = socket_inodes(peer_pid)
        for inode in socket_inodes(pid):
            if peers.get(inode) in theirs:
                return _descriptor_of(pid, inode)
        return 0

    # A link that was just made again may not have come to both processes yet.
    number = wait_for(found, f"a link between processes {pid} and {peer_pid}")
    return socket.socket(fileno=_duplicate(pid, number))


def _descriptor_of(pid: int, inode: str) -> int:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if entry.readlink().name == f"socket:[{inode}]":
                return int(entry.name)
        except OSError:
            continue
    return 0


def _duplicate(pid: int, descriptor: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        duplicate = libc.syscall(PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if duplicate < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(duplicate)


def _peers() -> dict[str, str]:
    """The inode of the peer of each connected unix socket of this host."""
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, ALL_STATES, 0, UDIAG_SHOW_PEER, 0, 0)
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0)
    peers: dict[str, str] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as diag:
        diag.settimeout(10.0)
        diag.sendto(header + request, (0, 0))
        while True:
            data = diag.recv(1 << 20)
            at = 0
            while at < len(data):
                size, kind = struct.unpack_from("=IH", data, at)
                if kind == NLMSG_DONE:
                    return peers
                assert kind == SOCK_DIAG_BY_FAMILY, f"sock_diag answers {kind}"
                inode = struct.unpack_from("=I", data, at + 20)[0]
                _read_peer(data, at + 32, at + size, str(inode), peers)
                at += (size + 3) & ~3


def _read_peer(data: bytes, at: int, end: int, inode: str, peers: dict[str, str]) -> None:
    while at + 4 <= end:
        size, kind = struct.unpack_from("=HH", data, at)
        if kind == UNIX_DIAG_PEER:
            peers[inode] = str(struct.unpack_from("=I", data, at + 4)[0])
        at += (size + 3) & ~3
