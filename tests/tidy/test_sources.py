"""The rules of rules.py, each held against the files it is for."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.tidy import rules
from tests.tidy.rules import ROOT, Source

sys.path.insert(0, str(ROOT / "build_backend"))

from compiled_modules import compiled_modules, pure_modules, read_rules

Rule = Callable[[Source], Iterator[str]]
PYTHON_FOLDERS = ("src", "tests", "sim", "tools", "build_backend", "benchmarks")


def read(paths: Iterable[str]) -> list[Source]:
    return [Source(path, (ROOT / path).read_text()) for path in paths]


def files(suffix: str, *folders: str) -> list[str]:
    """What git knows, or would add, and is there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({path for path in listed if path.endswith(suffix) and (ROOT / path).is_file()})


PYTHON = read([*files(".py", *PYTHON_FOLDERS), "setup.py"])
NATIVE = read(files(".pyx", "src"))
PURE = read(pure_modules(ROOT))
COMPILED = read(compiled_modules(ROOT))
TESTS = [source for source in PYTHON if source.path.startswith("tests/") and "/tidy/" not in source.path]
DOCUMENTS = read(files(".md"))


def hold(rule: Rule, sources: list[Source]) -> None:
    assert sources, "a rule that looks at nothing holds nothing"
    complaints = [complaint for source in sources for complaint in rule(source)]
    assert not complaints, f"{rule.__doc__}\n" + "\n".join(complaints)


@pytest.mark.parametrize("rule", [rules.pure_imports, rules.pure_calls, rules.pure_room_edges])
def test_pure_modules_keep(rule: Rule) -> None:
    hold(rule, PURE)


def test_compiled_modules_keep_to_what_mypyc_compiles_well() -> None:
    hold(rules.compiled_constructs, COMPILED)


@pytest.mark.parametrize(
    "rule",
    [rules.module_size, rules.function_size, rules.columns, rules.docstring, rules.names, rules.left_behind],
)
def test_all_python_keeps(rule: Rule) -> None:
    # The rules and their bad samples name what they forbid.
    samples = ("tests/tidy/rules.py", "tests/tidy/test_rules.py")
    hold(rule, [s for s in PYTHON if not (rule is rules.left_behind and s.path in samples)])


def test_native_sources_keep_to_the_columns() -> None:
    hold(rules.columns, NATIVE)


@pytest.mark.parametrize("rule", [rules.no_skips, rules.test_names])
def test_tests_keep(rule: Rule) -> None:
    hold(rule, TESTS)


def test_documents_link_to_what_exists() -> None:
    hold(rules.links, DOCUMENTS)


def test_nothing_names_a_path_of_one_machine() -> None:
    samples = "tests/tidy/"
    others = read(["Makefile", ".ci/run", "pyproject.toml"])
    hold(rules.machine_paths, [s for s in PYTHON + DOCUMENTS + others if not s.path.startswith(samples)])


def test_nothing_is_built_in_the_source_tree() -> None:
    built = [str(path) for suffix in ("so", "c", "pyd") for path in (ROOT / "src").rglob(f"*.{suffix}")]
    assert not built, "stale libraries win over the modules beside them: make clean"


def test_every_exception_from_compiling_has_a_reason_and_a_file() -> None:
    exceptions = read_rules(ROOT)["interpreted"]
    assert isinstance(exceptions, dict)
    for pattern, reason in exceptions.items():
        assert len(reason.split()) >= 3, f"{pattern}: why is it not compiled?"
        assert list((ROOT / "src" / "beanfield").glob(pattern.replace("*__", "**/__"))), f"{pattern} matches no file"


def test_every_module_of_the_server_has_a_room() -> None:
    rooms = {rules.room_of(source.path) for source in PURE}
    assert rooms <= set(rules.ROOMS), f"say in rules.ROOMS what {rooms - set(rules.ROOMS)} may import"
