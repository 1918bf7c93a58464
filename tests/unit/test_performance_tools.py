"""The tools behind docs/performance.md: the picture of the curves, the reading of traces and counts, the driver."""

import argparse
import xml.etree.ElementTree as ET

import pytest

from benchmarks import in_memory, roles
from benchmarks.curves_picture import Panel, picture

SVG = "{http://www.w3.org/2000/svg}"


def test_each_series_of_a_panel_is_a_line_with_a_dot_for_each_size() -> None:
    panel = Panel("jobs <ready>", {("ours", "put"): [(10, 1.0), (1_000, 2.0)], ("theirs", "put"): [(10, 6.5)]})
    root = ET.fromstring(picture([panel, Panel("nothing", {})], "ours"))
    lines = [path for path in root.iter(f"{SVG}path") if path.get("fill") == "none"]
    assert [line.get("stroke-dasharray") is None for line in lines] == [True, False]
    assert len(list(root.iter(f"{SVG}circle"))) == 3
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"CPU us per command, by jobs <ready>", "ours", "theirs", "10", "1,000"} <= set(words)


def test_higher_costs_are_higher_up_and_all_are_in_the_panel() -> None:
    series = [(1, 0.001), (10, 3.0), (100, 700.0)]
    root = ET.fromstring(picture([Panel("all", {("ours", "put"): series})], "ours"))
    heights = [float(dot.get("cy", "")) for dot in root.iter(f"{SVG}circle")]
    assert heights == sorted(heights, reverse=True)
    assert all(0 < height < 290 for height in heights)


def test_calls_in_a_trace_are_counted_with_the_bytes_they_moved(capsys: pytest.CaptureFixture[str]) -> None:
    trace = """\
12 recvfrom(7, ""..., 65536, 0, NULL, NULL) = 100
12 sendto(7, ""..., 60, MSG_NOSIGNAL, NULL, 0) = 60
12 epoll_pwait2(4,  <unfinished ...>
13 futex(0x1, FUTEX_WAIT, 2, NULL <unfinished ...>
12 <... epoll_pwait2 resumed>[], 512, NULL, NULL, 8) = 1
12 recvfrom(7, ""..., 65536, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)
"""
    roles.print_calls("row", "split", "owner 0", trace, 2)
    printed = [line.split()[4:] for line in capsys.readouterr().out.splitlines()]
    assert ["recvfrom", "1.000", "per", "command", "50", "bytes"] in printed
    assert ["sendto", "0.500", "per", "command", "60", "bytes"] in printed
    assert ["epoll_pwait2", "0.500", "per", "command"] in printed


def test_instructions_of_a_function_leave_out_those_of_what_it_calls() -> None:
    counts = in_memory.Counts("""\
fn=(1) main
10 5
cfn=(2) PyObject_Malloc
calls=3 20
+1 400
12 7

fn=(2)
20 18
fn=(1)
cfn=(2)
calls=1 20
* 6
""")
    assert counts.spent == {"main": 12, "PyObject_Malloc": 18}
    assert counts.calls == {"PyObject_Malloc": 4}


@pytest.mark.parametrize("shape", in_memory.SHAPES)
@pytest.mark.parametrize("depth", [1, 3])
def test_in_memory_every_job_is_put_reserved_and_deleted(shape: str, depth: int) -> None:
    given = argparse.Namespace(
        shape=shape, connections=5, tubes=2, depth=depth, body=10, per_turn=2, rounds=3, count=False
    )
    found = in_memory.run(given)
    assert list(found) == ["put", "reserve", "delete"]
    assert all(sum(parts) > 0 for parts in found.values())
