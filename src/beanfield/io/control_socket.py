"""One end of a control socket: messages of control.py with their descriptors, never waiting.

What does not fit into the socket is kept, in order, with its descriptors. A peer that has stopped reading is the
supervisor's to judge; what is kept for it is small. Knows nothing of what the messages mean.
"""

import contextlib
import os
import socket
from collections import deque

from beanfield.control import ControlFault, Message, MessageReader
from beanfield.io.process import DescriptorsLost, receive_descriptors, send_descriptors

RECEIVE_BYTES = 65_536
DESCRIPTORS_MAX = 64  # in one receive


class ControlSocket:
    """Takes ownership of the socket, and of descriptors given to send()."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.setblocking(False)
        self._reader = MessageReader()
        self._descriptors: deque[int] = deque()
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self.ended = False

    def fileno(self) -> int:
        """For a poller."""
        return self._channel.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether flush() should be called when the socket can be written to."""
        return bool(self._unsent)

    def send(self, message: Message, descriptors: list[int] | None = None) -> None:
        """Send, or keep until it can be. The descriptors are closed here once sent."""
        passed = descriptors or []
        assert message.fds == len(passed)
        if self.ended:
            _close_all(passed)
            return
        self._unsent.append((message.encode(), passed))
        self.flush()

    def flush(self) -> None:
        """Send what was kept."""
        while self._unsent and not self.ended:
            data, passed = self._unsent.popleft()
            try:
                sent = send_descriptors(self._channel, data, passed) if passed else self._channel.send(data)
            except BlockingIOError:
                self._unsent.appendleft((data, passed))
                return
            except OSError:
                self.ended = True
                _close_all(passed)
                return
            # The descriptors went with the first byte.
            _close_all(passed)
            if sent < len(data):
                self._unsent.appendleft((data[sent:], []))

    def receive(self) -> list[tuple[Message, list[int]]]:
        """The messages that have come. Sets `ended` at the end of the stream, or when the peer sends nonsense."""
        while not self.ended:
            try:
                data, descriptors = receive_descriptors(self._channel, RECEIVE_BYTES, DESCRIPTORS_MAX)
            except BlockingIOError:
                break
            except (OSError, DescriptorsLost):
                self.ended = True
                break
            self._descriptors.extend(descriptors)
            if not data:
                self.ended = True
                break
            self._reader.receive(data)
        messages = []
        try:
            while (message := self._reader.next()) is not None:
                if message.fds > len(self._descriptors):
                    raise ControlFault(f"{message.kind} without its descriptors")
                messages.append((message, [self._descriptors.popleft() for _ in range(message.fds)]))
        except ControlFault:
            self.ended = True
        return messages

    def close(self) -> None:
        """Close the socket and every descriptor that nobody took."""
        self.ended = True
        for _, passed in self._unsent:
            _close_all(passed)
        self._unsent.clear()
        _close_all(list(self._descriptors))
        self._descriptors.clear()
        self._channel.close()


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
