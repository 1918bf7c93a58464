"""What a process asks of the operating system about itself: limits, name, parent, service manager, passed descriptors.

Knows nothing of roles. Everything here is called at start or now and then, never per command.
"""

import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Final

from beanfield.constants import NS_PER_US

PR_SET_PDEATHSIG: Final = 1
# The supervisor takes a whole group's signals; its children obey their control socket instead.
GROUP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class ParentGone(Exception):
    """The process that started this one has ended: so must this one."""


class DescriptorsLost(Exception):
    """A message carried more descriptors than were expected, or this process has no room for them."""


def die_with_parent(parent_pid: int) -> None:
    """SIGKILL to this process when the thread that spawned it ends. Elsewhere than on Linux the control socket must do.

    The check afterwards closes the gap: a parent that died before prctl() would never be noticed.
    """
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
    if os.getppid() != parent_pid:
        raise ParentGone(f"the parent is no longer process {parent_pid}")


def ignore_group_signals() -> None:
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def raise_descriptor_limit() -> int:
    """Soft limit of open descriptors to the hard one, if the system lets us. Returns the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS says "unlimited" and means less
            return soft
    return hard


def descriptor_limit() -> int:
    """How many descriptors this process may have now."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def set_title(title: str) -> None:
    """The name that ps shows. Without the library the process keeps its command line, and works all the same."""
    try:
        import setproctitle
    except ImportError:
        return
    setproctitle.setproctitle(title)


# ---------------------------------------------------------------- service manager


def notify_service_manager(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """One message of systemd's protocol, such as `READY=1`. False if nobody listens: that is no error."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address[0] == "@":
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(state.encode(), address)
        except OSError:
            return False
    return True


def watchdog_interval_ns(environ: Mapping[str, str] = os.environ) -> int:
    """How often the service manager wants `WATCHDOG=1` at the least; 0 if it does not, or not of this process."""
    interval = environ.get("WATCHDOG_USEC", "")
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not interval.isdecimal():
        return 0
    return int(interval) * NS_PER_US


# ---------------------------------------------------------------- passed descriptors


def send_descriptors(channel: socket.socket, data: bytes, descriptors: list[int]) -> int:
    """Send data, which must not be empty, and copies of the descriptors with its first byte. Returns the bytes sent.

    Raises BlockingIOError when the channel is full; then nothing was sent.
    """
    assert data
    flags = getattr(socket, "MSG_NOSIGNAL", 0)
    return socket.send_fds(channel, [data], descriptors, flags)


def receive_descriptors(channel: socket.socket, bytes_max: int, descriptors_max: int) -> tuple[bytes, list[int]]:
    """What send_descriptors() sent; b"" at the end of the channel. The descriptors are not inherited by children."""
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, descriptors, result, _ = socket.recv_fds(channel, bytes_max, descriptors_max, flags)
    if result & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise DescriptorsLost(f"more than {descriptors_max} descriptors, or no room for them")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return data, descriptors
