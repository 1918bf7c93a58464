"""The history of the benchmarks, and the choice of rows. `tests/processes/test_bench.py` is for what they measure."""

import json

import pytest

from benchmarks import history, run
from benchmarks.rows import COSTS, ROWS, SHAPE_OPTIONS, Floor


def line_of(speed, build="compiled", cores=2, commit="a"):
    ratios = {"split": {"commands_per_s": speed, "server_cpu": 0.5}}
    machine = {"cpu": "X", "cores": cores, "kernel": "6"}
    rows = {"lockstep64": {"ratios": ratios}}
    return {"format": history.FORMAT, "commit": commit, "build": build, "machine": machine, "rows": rows}


def test_the_head_of_a_line_says_what_was_measured_and_where():
    head = history.head_of_line()
    assert {"date", "commit", "changed_since_commit", "build", "reactor", "machine"} <= set(head)
    assert {"cpu", "cores", "kernel", "python"} <= set(head["machine"])
    assert json.loads(json.dumps(head)) == head


def test_lines_are_compared_with_the_last_of_the_same_build_and_machine(tmp_path):
    file = tmp_path / "history.jsonl"
    assert history.last_like(line_of(1.0), file) is None
    for line in (
        line_of(1.0, commit="first"),
        line_of(2.0, commit="second"),
        line_of(9.0, build="interpreted"),
        line_of(9.0, cores=64),
    ):
        history.append(line, file)
    found = history.last_like(line_of(1.0), file)
    assert found is not None and found["commit"] == "second"
    assert len(file.read_text().splitlines()) == 4


def test_a_slow_down_beyond_noise_is_told():
    assert history.changes(line_of(1.0), line_of(1.1)) == []
    assert history.changes(line_of(1.0), line_of(1.5)) == [
        "slower: lockstep64, split: 1.00 times beanstalkd's speed, was 1.50"
    ]
    assert history.changes(line_of(2.0), line_of(1.5))[0].startswith("faster: lockstep64, split")


def test_rows_not_measured_before_are_no_change():
    earlier = line_of(1.0)
    earlier["rows"] = {"lockstep64": {"ratios": {}}}
    assert history.changes(line_of(2.0), earlier) == []


def test_every_row_names_known_shapes_and_names_are_unique():
    names = [row.name for row in ROWS] + [cost.name for cost in COSTS]
    assert len(set(names)) == len(names)
    assert not [name for name in names if "," in name]
    for row in ROWS:
        assert row.shapes and set(row.shapes) <= set(SHAPE_OPTIONS)
    assert any(row.short for row in ROWS)


def test_rows_are_chosen_by_name():
    assert run.parse(["--only", "lockstep64, memory per job"]).names == ["lockstep64", "memory per job"]
    with pytest.raises(SystemExit):
        run.parse(["--only", "lockstep"])


def test_a_missed_floor_is_marked_and_a_met_one_is_not():
    ratio = {"commands_per_s": 1.0, "server_cpu": 0.5}
    assert run._against(ratio, Floor(1.2, 0.9)) == "   speed 1.00 (at least 1.2) missed   CPU 0.50 (at most 0.9)"
    assert run._against(ratio, Floor()) == "   speed 1.00   CPU 0.50"
    assert run._against(None, Floor(1.0)) == ""
