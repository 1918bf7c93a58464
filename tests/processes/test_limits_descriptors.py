"""Out of descriptors: who is connected goes on, whatever else happens to the server meanwhile.

That new connections wait, that nothing spins and that they are served once there is room is shown for two frontends by
tests/transcripts/test_rude_clients.py.
"""

import resource
from pathlib import Path

from tests.processes.memory import assert_comes_to_rest
from tests.processes.server import ChildSeen, Client, Server

ROOM = 20


def leave_room(child: ChildSeen, connections: int) -> None:
    """It may open so many more descriptors."""
    limit = len(list(Path(f"/proc/{child.pid}/fd").iterdir())) + connections
    resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (limit, limit))


def crowd(server: Server) -> list[Client]:
    """More than there is room for."""
    clients = [server.connect(timeout=60.0) for _ in range(2 * ROOM)]
    for client in clients:
        client.send(b"list-tube-used\r\n")
    assert clients[0].line() == b"USING default"
    return clients


def test_without_frontends_a_full_process_serves_who_is_connected_and_the_others_later() -> None:
    with Server(slots=1, frontends=0) as server, server.connect(timeout=60.0) as first:
        assert first.ask(b"list-tube-used") == b"USING default"
        child = server.child("owner", 0)
        leave_room(child, ROOM)
        clients = crowd(server)
        assert_comes_to_rest(server)
        assert first.put(b"x") == b"INSERTED 1"
        assert server.child("owner", 0) == child
        for client in clients[:ROOM]:
            client.close()
        for client in clients[ROOM:]:
            assert client.line() == b"USING default"
            client.close()


def test_a_full_frontend_is_linked_again_to_owners_that_restart() -> None:
    with Server(slots=2, frontends=1, extra=["--slot-wait", "60"]) as server, server.connect(timeout=60.0) as first:
        assert first.ask(b"list-tube-used") == b"USING default"
        frontend = server.child("frontend", 0)
        leave_room(frontend, ROOM)
        clients = crowd(server)
        assert_comes_to_rest(server)
        for slot in range(2):
            server.kill("owner", slot)
        for slot in range(2):
            server.wait_for_log(f"owner {slot} serves again")
        # Commands for both slots; nobody's connection has ended.
        assert first.put(b"x").startswith(b"INSERTED ")
        assert first.ask(b"list-tubes").startswith(b"OK ")
        assert server.child("frontend", 0) == frontend
        assert clients[0].ask(b"list-tube-used") == b"USING default"
        for client in clients:
            client.close()
