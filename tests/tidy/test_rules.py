"""Each rule of rules.py complains about a small bad sample, once, and is content with a good one."""

from collections.abc import Callable, Iterator

import pytest

from tests.tidy import rules
from tests.tidy.rules import Source

ENGINE = "src/beanfield/engine/job.py"
LONG_FUNCTION = "def start() -> None:\n" + "    step()\n" * rules.FUNCTION_LINES_MAX
Rule = Callable[[Source], Iterator[str]]

BAD = [
    (rules.pure_imports, ENGINE, "import time\n"),
    (rules.pure_imports, ENGINE, "from os import path\n"),
    (rules.pure_imports, ENGINE, "def now() -> int:\n    import select\n"),
    (rules.pure_calls, ENGINE, "slot = hash(name) % 4\n"),
    (rules.pure_calls, ENGINE, "key = id(job)\n"),
    (rules.pure_room_edges, ENGINE, "from beanfield.proto import replies\n"),
    (rules.pure_room_edges, ENGINE, "from beanfield import frontend\n"),
    (rules.pure_room_edges, ENGINE, "from beanfield.wal import disk\n"),
    (rules.pure_room_edges, ENGINE, "from . import heap\n"),
    (rules.pure_room_edges, ENGINE, "import sim.world\n"),
    (rules.pure_room_edges, "src/beanfield/proto/parser.py", "import beanfield.engine.job\n"),
    (rules.pure_room_edges, "src/beanfield/frontend/core.py", "from beanfield.owner.core import OwnerCore\n"),
    (rules.pure_room_edges, "src/beanfield/constants.py", "from beanfield.errors import LinkFault\n"),
    (rules.compiled_constructs, ENGINE, "def f() -> None:\n    def g() -> None: ...\n"),
    (rules.compiled_constructs, ENGINE, "def f() -> None:\n    g = lambda: 1\n"),
    (rules.compiled_constructs, ENGINE, "def f(**options: int) -> None: ...\n"),
    (rules.compiled_constructs, ENGINE, "def f():\n    yield 1\n"),
    (rules.compiled_constructs, ENGINE, "for z in (x for x in y): ...\n"),
    (rules.compiled_constructs, ENGINE, "def f() -> None:\n    global count\n"),
    (rules.compiled_constructs, ENGINE, "import dataclasses\n"),
    (rules.compiled_constructs, ENGINE, "x: int = y  # type: ignore\n"),
    (rules.module_size, ENGINE, "x = 1\n" * (rules.MODULE_LINES_MAX + 1)),
    (rules.function_size, ENGINE, LONG_FUNCTION),
    (rules.columns, ENGINE, "x" * (rules.COLUMNS_MAX + 1) + "\n"),
    (rules.docstring, ENGINE, "x = 1\n"),
    (rules.docstring, ENGINE, '"""Jobs."""\n'),
    (rules.names, "src/beanfield/engine/job_utils.py", ""),
    (rules.names, ENGINE, "class TubeManager: ...\n"),
    (rules.names, "src/beanfield/common/job.py", ""),
    (rules.left_behind, ENGINE, "# TODO: later\n"),
    (rules.machine_paths, ENGINE, 'ROOT = "/home/somebody/beanfield"\n'),
    (rules.no_skips, "tests/unit/test_job.py", "@pytest.mark.skip\ndef test_a_job_waits(): ...\n"),
    (rules.no_skips, "tests/unit/test_job.py", "from pytest import skip\nskip('no')\n"),
    (rules.no_skips, "tests/unit/test_job.py", "@pytest.mark.xfail\ndef test_a_job_waits(): ...\n"),
    (rules.test_names, "tests/unit/test_job.py", "def test_put(): ...\n"),
    (rules.test_names, "tests/unit/test_job.py", "def test_a_job_waits(): ...\ndef test_a_job_waits(): ...\n"),
    (rules.links, "README.md", "See [the plan](docs/no-such-plan.md).\n"),
    (rules.links, "docs/validation.md", "`tests/tidy/no_such_file.py`\n"),
    (rules.links, "docs/validation.md", "`tests/tidy/test_rules.py::test_that_nobody" + "_wrote`\n"),
]

GOOD = [
    (rules.pure_imports, ENGINE, "from mypy_extensions import i64\nfrom beanfield.constants import NEVER_NS\n"),
    (rules.pure_calls, ENGINE, "size = len(body)\n"),
    (rules.pure_room_edges, ENGINE, "from beanfield.engine.heap import Heap\nfrom beanfield import constants\n"),
    (rules.pure_room_edges, ENGINE, "from beanfield.wal.journal import Journal\n"),
    (rules.compiled_constructs, ENGINE, "total = sum(x for x in y)\n"),
    (rules.compiled_constructs, ENGINE, "def f(job: int) -> int:\n    return job\n"),
    (rules.module_size, ENGINE, "x = 1\n" * rules.MODULE_LINES_MAX),
    (rules.function_size, ENGINE, LONG_FUNCTION.replace("    step()\n", "", 1)),
    (rules.columns, ENGINE, "x" * rules.COLUMNS_MAX + "\n"),
    (rules.docstring, ENGINE, '"""One job: its fields and its states."""\n'),
    (rules.names, ENGINE, "class Tube: ...\n"),
    (rules.left_behind, ENGINE, "# Later jobs come later.\n"),
    (rules.machine_paths, ENGINE, 'path = "docs/work/plan"\n'),
    (rules.no_skips, "tests/unit/test_job.py", "def test_a_job_waits(): ...\n"),
    (rules.test_names, "tests/unit/test_job.py", "def test_a_job_waits(): ...\n"),
    (rules.links, "README.md", "See [the rules](tests/tidy/rules.py).\n`tests/tidy/test_rules.py::links`\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_a_rule_complains_about_a_bad_sample(rule: Rule, path: str, text: str) -> None:
    complaints = list(rule(Source(path, text)))
    assert len(complaints) == 1, complaints
    assert complaints[0].startswith(f"{path}:")


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_a_rule_is_content_with_a_good_sample(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text))) == []


def test_every_rule_has_a_bad_and_a_good_sample() -> None:
    defined = {
        value
        for value in vars(rules).values()
        if callable(value) and getattr(value, "__annotations__", {}).get("return") == Iterator[str]
    }
    assert {rule for rule, _, _ in BAD} == defined
    assert {rule for rule, _, _ in GOOD} == defined
