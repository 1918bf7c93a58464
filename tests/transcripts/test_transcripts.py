"""Every transcript of this directory, run on every shape of the server and on the oracle.

The transcripts of one shape run at the same time, on one server that they share (their tubes have names of their own);
those marked `fresh` get a server each. So waiting for a second in one costs the others nothing.

A transcript that depends on time (it waits, says when, meets a deadline, or counts on a closed connection being known
at once, which owners wait 100 ms for) is played up to ATTEMPTS_TIMED times: a machine that keeps this process or the
server from running breaks it, though the server is right. A fault of the server breaks every attempt. All others have
one attempt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.transcripts.runner import Run
from tests.transcripts.script import Transcript, read_transcript
from tests.transcripts.servers import SHAPES, RunningServer, Shape, start

DIRECTORY = Path(__file__).parent
TRANSCRIPTS = {path.stem: read_transcript(path) for path in sorted(DIRECTORY.glob("*.txt"))}
CASES = [
    pytest.param(shape, name, id=f"{shape.name}-{name}", marks=pytest.mark.xdist_group(shape.name))
    for shape in SHAPES
    for name, transcript in TRANSCRIPTS.items()
    if transcript.runs_on_oracle() or not shape.is_oracle
]
SHARED_THREADS = 64
FRESH_THREADS = 2
ORACLE_SETTLE_SECONDS = 0.1
ATTEMPTS_TIMED = 3
TIMED = re.compile(r"^wait | within |nothing \d|DEADLINE_SOON|TIMED_OUT| close$| reset$", re.MULTILINE)


class Runs:
    """The runs of the selected transcripts on one shape, all begun when the first result is asked for."""

    def __init__(self, shape: Shape, names: list[str]) -> None:
        self._shape = shape
        self._shared = start(shape)
        self._shared_pool = ThreadPoolExecutor(SHARED_THREADS)
        self._fresh_pool = ThreadPoolExecutor(FRESH_THREADS)
        self._results: dict[str, Future[None]] = {}
        for name in names:
            transcript = TRANSCRIPTS[name]
            fresh = "fresh" in transcript.marks
            pool = self._fresh_pool if fresh else self._shared_pool
            self._results[name] = pool.submit(self._patiently, self._on_fresh if fresh else self._on_shared, transcript)

    def result(self, name: str) -> None:
        try:
            self._results[name].result()
        except AssertionError as error:
            raise AssertionError(f"{error}\nserver log: {self._shared.log()}") from None

    def stop(self) -> None:
        self._shared_pool.shutdown()
        self._fresh_pool.shutdown()
        self._shared.stop()

    def _patiently(self, run: Callable[[Transcript, int], None], transcript: Transcript) -> None:
        timed = TIMED.search((DIRECTORY / f"{transcript.name}.txt").read_text(encoding="utf-8")) is not None
        attempts = ATTEMPTS_TIMED if timed else 1
        for attempt in range(attempts):
            try:
                return run(transcript, attempt)
            except AssertionError:
                if attempt == attempts - 1:
                    raise

    def _on_shared(self, transcript: Transcript, attempt: int) -> None:
        # Every attempt has tubes of its own: the one before may have left jobs.
        self._run(transcript, self._shared, f"{transcript.name}-{attempt}" if attempt else transcript.name)

    def _run(self, transcript: Transcript, server: RunningServer, tube_prefix: str) -> None:
        send_signal = server.send_signal if "fresh" in transcript.marks else None
        settle_seconds = ORACLE_SETTLE_SECONDS if self._shape.is_oracle else 0.0
        Run(transcript, server.address, tube_prefix, send_signal, not self._shape.is_oracle, settle_seconds).run()

    def _on_fresh(self, transcript: Transcript, attempt: int) -> None:
        server = start(self._shape, tuple(transcript.marks.get("options", "").split()))
        try:
            self._run(transcript, server, "t")
        except AssertionError as error:
            raise AssertionError(f"{error}\nlog of its own server: {server.log()}") from None
        finally:
            server.stop()


@pytest.fixture(scope="module")
def runs_by_shape(request: pytest.FixtureRequest) -> Iterator[dict[Shape, Runs]]:
    runs: dict[Shape, Runs] = {}
    yield runs
    for each in runs.values():
        each.stop()


@pytest.mark.parametrize(("shape", "name"), CASES)
def test_the_server_answers_as_the_transcript_says(
    request: pytest.FixtureRequest, runs_by_shape: dict[Shape, Runs], shape: Shape, name: str
) -> None:
    if shape not in runs_by_shape:
        selected = [
            str(item.callspec.params["name"])
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and item.originalname == "test_the_server_answers_as_the_transcript_says"
            and item.callspec.params["shape"] == shape
        ]
        runs_by_shape[shape] = Runs(shape, selected)
    runs_by_shape[shape].result(name)


def validation_table() -> str:
    return (DIRECTORY.parents[1] / "docs" / "validation.md").read_text(encoding="utf-8")


def test_the_validation_table_names_every_transcript_and_no_other() -> None:
    assert set(re.findall(r"`([a-z0-9-]+)\.txt`", validation_table())) == set(TRANSCRIPTS)


def test_the_validation_table_names_only_tests_that_exist() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in DIRECTORY.parent.rglob("test_*.py"))
    existing = set(re.findall(r"def (test_\w+)\(", sources))
    named = set(re.findall(r"`(test_\w+)`", validation_table()))
    assert named - existing == set()
