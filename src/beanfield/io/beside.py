"""Long work at the start of a child, in a thread beside its control socket: it stays in touch with the supervisor.

A ping is answered with progress; the end of the supervisor, or `stop`, ends the process at once: before it serves, a
child has nothing that must be finished. An exception of the work is raised here.
"""

import os
import select
import threading
from collections.abc import Callable

from beanfield.control import Message
from beanfield.io.control_socket import ControlSocket


def beside(control: ControlSocket, work: Callable[[], None], progress: Callable[[], str]) -> None:
    """Runs `work` to its end."""
    caught: list[BaseException] = []
    done_reader, done_writer = os.pipe2(os.O_CLOEXEC)

    def run() -> None:
        try:
            work()
        except BaseException as error:
            caught.append(error)
        os.close(done_writer)

    thread = threading.Thread(target=run, name="start", daemon=True)
    thread.start()
    waits: list[int | ControlSocket] = [done_reader, control]
    while True:
        writes = [control] if control.has_unsent else []
        readable = select.select(waits, writes, [])[0]
        control.flush()
        if done_reader in readable:
            break
        for message, _ in control.receive():
            if message.kind == "stop":
                os._exit(0)
            if message.kind == "ping":
                control.send(Message("progress", {"text": progress()}))
            else:
                assert message.kind == "drain"  # asked again before it serves
        if control.ended:
            os._exit(0)
    thread.join()
    os.close(done_reader)
    if caught:
        raise caught[0]
