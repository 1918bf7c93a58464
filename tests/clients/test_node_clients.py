"""Real clients written for Node (jackd, node-beanstalk) work with every shape of the server, and with the oracle.

Runs where `node` is installed and node/node_modules is there (see README.md); each client has a driver in node/ that
asserts everything itself and says so in its last line.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transcripts.servers import SHAPES, RunningServer, Shape, start

NODE = Path(__file__).parent / "node"
DRIVERS = ("drive-jackd.js", "drive-node-beanstalk.js")
DRIVE_SECONDS = 60.0
TCP_SHAPES = [shape for shape in SHAPES if not shape.unix]

if shutil.which("node") and (NODE / "node_modules").is_dir():

    @pytest.fixture(scope="module")
    def servers() -> Iterator[dict[Shape, RunningServer]]:
        running: dict[Shape, RunningServer] = {}
        yield running
        for server in running.values():
            server.stop()

    @pytest.mark.parametrize("driver", DRIVERS)
    @pytest.mark.parametrize("shape", TCP_SHAPES, ids=lambda shape: shape.name)
    def test_a_node_client_takes_jobs_through_their_lives(
        servers: dict[Shape, RunningServer], shape: Shape, driver: str
    ) -> None:
        if shape not in servers:
            servers[shape] = start(shape)
        address = servers[shape].address
        assert not isinstance(address, str)
        host, port = address
        ended = subprocess.run(
            ["node", driver, str(host), str(port)], cwd=NODE, capture_output=True, text=True, timeout=DRIVE_SECONDS
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert ended.stdout.splitlines()[-1] == "all as expected"
