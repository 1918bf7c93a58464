"""The frontend's loop tells its core what only a loop can know."""

from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src/beanfield/frontend/main.py"


def test_the_core_hears_before_each_turn_whether_the_poll_left_something_behind() -> None:
    # SYNCED and the end of a client's input rest on it. The loop cannot be made without a process around it.
    on_ready = SOURCE.read_text().partition("def on_ready(")[2].partition("\n    def ")[0]
    assert ".poll_full = self.reactor.full" in on_ready
