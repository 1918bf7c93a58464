"""The rules that the sources keep, one function each: a file in, complaints out. STYLE.md says them in words.

Knows nothing of pytest. Each rule takes a Source, so that test_rules.py can show it a bad sample as well as the tree.
"""

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 120

# Everything else from the standard library or elsewhere brings in the world: a clock, a socket, chance, threads.
PURE_IMPORTS = {"__future__", "typing", "struct", "zlib", "hashlib", "collections", "mypy_extensions", "librt"}
# Built-ins that differ from run to run, or reach outside.
IMPURE_CALLS = {"hash", "id", "open", "print", "input", "exec", "eval", "__import__", "breakpoint"}

# Calls that mypyc turns into a loop, or that make a list of a generator expression anyway.
GENERATOR_EXPRESSION_USERS = {"all", "any", "sum", "min", "max", "sorted", "list", "tuple", "set"}

# Which room may import which, beside itself; "wal.journal" is that module alone. What is not here may not be: engine
# and proto do not know each other, and frontend and owner meet only in ipc.
BASE = {"constants", "errors"}
ROOMS: dict[str, set[str]] = {
    "constants": set(),
    "errors": set(),
    "build": {"constants"},
    "routing": BASE,
    "pages": BASE,
    "engine": BASE | {"routing", "pages", "wal.journal"},
    "proto": BASE,
    "ipc": BASE,
    "wal": BASE | {"engine", "routing"},
    "owner": BASE | {"engine", "wal", "ipc", "proto", "routing", "pages"},
    "frontend": BASE | {"proto", "ipc", "routing", "pages"},
    "supervisor": BASE | {"ipc", "routing", "pages"},
    "bench": BASE | {"ipc"},
    "offline": BASE | {"engine", "wal", "routing"},
    "io": BASE | {"ipc", "pages"},
    # The one place where both role cores are known: `--frontends 0`.
    "combined": BASE | {"frontend", "owner", "ipc", "pages"},
}
BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}
SKIPS = {"skip", "skipif", "skipIf", "skipUnless", "xfail", "importorskip", "SkipTest", "expectedFailure"}
LEFT_BEHIND = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|root|home)/")


class Source:
    """One file: its path below the root with forward slashes, and its text."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def complaint(self, node: ast.AST | int, message: str) -> str:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path}:{line}: {message}"


def room_of(path: str) -> str:
    """The first folder below src/beanfield, or the module's name where it stands there itself."""
    return path.removeprefix("src/beanfield/").split("/")[0].removesuffix(".py")


def imported_names(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node, "." * node.level + (node.module or "")
            elif node.module == "beanfield":
                for alias in node.names:
                    yield node, f"beanfield.{alias.name}"
            else:
                yield node, node.module or ""


# ---------------------------------------------------------------- rules for pure modules


def pure_imports(source: Source) -> Iterator[str]:
    """A pure module imports nothing that reads a clock, a socket, a file or chance."""
    for node, name in imported_names(source):
        top = name.split(".")[0]
        if top != "beanfield" and top not in PURE_IMPORTS:
            yield source.complaint(node, f"a pure module imports {name}")


def pure_calls(source: Source) -> Iterator[str]:
    """A pure module calls no built-in that differs from run to run or reaches outside."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield source.complaint(node, f"a pure module calls {node.func.id}()")


def pure_room_edges(source: Source) -> Iterator[str]:
    """A pure module imports only from the rooms that ROOMS gives its own."""
    room = room_of(source.path)
    allowed = ROOMS.get(room, set()) | {room}
    for node, name in imported_names(source):
        if name.startswith("."):
            yield source.complaint(node, "relative import: write the full name")
        elif name.startswith("beanfield."):
            parts = name.split(".")
            if parts[1] not in allowed and ".".join(parts[1:3]) not in allowed:
                yield source.complaint(node, f"{room} may not import {name}")
        elif name.split(".")[0] in ("sim", "tests", "tools"):
            yield source.complaint(node, f"nothing of the server imports {name}")


def compiled_constructs(source: Source) -> Iterator[str]:
    """A compiled module has no construct that mypyc makes slow or treats differently from the interpreter."""
    consumed: set[ast.AST] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in GENERATOR_EXPRESSION_USERS:
                consumed.update(node.args)
        if isinstance(node, ast.FunctionDef):
            if node.args.kwarg is not None:
                yield source.complaint(node, f"{node.name} takes **{node.args.kwarg.arg}")
            for inner in ast.walk(node):
                if inner is not node and isinstance(inner, ast.FunctionDef | ast.Lambda | ast.ClassDef):
                    yield source.complaint(inner, f"something is defined inside {node.name}")
        elif isinstance(node, ast.GeneratorExp) and node not in consumed:
            yield source.complaint(node, "a generator expression")
        elif isinstance(node, ast.Yield | ast.YieldFrom | ast.AsyncFunctionDef):
            yield source.complaint(node, "a generator or coroutine")
        elif isinstance(node, ast.Global):
            yield source.complaint(node, "a global statement")
    for node, name in imported_names(source):
        if name in ("dataclasses", "enum"):
            yield source.complaint(node, f"{name}: not a native class")
    for number, line in enumerate(source.text.splitlines(), 1):
        if "type: ignore" in line:
            yield source.complaint(number, "type: ignore in compiled code can make wrong code")


# ---------------------------------------------------------------- rules for all Python


def module_size(source: Source) -> Iterator[str]:
    """A module has at most MODULE_LINES_MAX lines."""
    lines = source.text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield source.complaint(1, f"{lines} lines, more than {MODULE_LINES_MAX}: split it by what it does")


def function_size(source: Source) -> Iterator[str]:
    """A function has at most FUNCTION_LINES_MAX lines."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield source.complaint(node, f"{node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}")


def columns(source: Source) -> Iterator[str]:
    """No line is longer than COLUMNS_MAX columns."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > COLUMNS_MAX:
            yield source.complaint(number, f"{len(line)} columns, more than {COLUMNS_MAX}")


def docstring(source: Source) -> Iterator[str]:
    """Each module says at its head what it is for."""
    if len((ast.get_docstring(source.tree) or "").split()) < 4:
        yield source.complaint(1, "no docstring that says what this module does")


def names(source: Source) -> Iterator[str]:
    """No file, folder or class has a name that would fit anything."""
    found: list[tuple[ast.AST | int, str]] = [(1, Path(source.path).stem), (1, Path(source.path).parent.name)]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            found.append((node, node.name))
    for place, name in found:
        words = set(re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_"))
        if words & BANNED_WORDS:
            yield source.complaint(place, f"{name}: say what it does instead")


def left_behind(source: Source) -> Iterator[str]:
    """No note about work not done: it is done, or it is an issue."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if LEFT_BEHIND.search(line):
            yield source.complaint(number, "a note about work not done")


def machine_paths(source: Source) -> Iterator[str]:
    """No path of one person's machine."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if MACHINE_PATHS.search(line):
            yield source.complaint(number, "a path that only one machine has")


# ---------------------------------------------------------------- rules for tests and documents


def no_skips(source: Source) -> Iterator[str]:
    """No test is skipped or expected to fail: what cannot be tested here fails and says what is missing."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in SKIPS:
            yield source.complaint(node, f"{node.attr}: tests are not skipped")
        elif isinstance(node, ast.Name) and node.id in SKIPS:
            yield source.complaint(node, f"{node.id}: tests are not skipped")


def test_names(source: Source) -> Iterator[str]:
    """A test's name is a sentence, and no second test of the file has it (the first would never run)."""
    for scope in ast.walk(source.tree):
        if not isinstance(scope, ast.Module | ast.ClassDef):
            continue
        seen: set[str] = set()
        for node in scope.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                if node.name in seen:
                    yield source.complaint(node, f"{node.name} hides an earlier test of that name")
                if node.name.count("_") < 2:
                    yield source.complaint(node, f"{node.name} is not a sentence")
                seen.add(node.name)


def links(source: Source) -> Iterator[str]:
    """What a document links to or names as a path of ours exists; a named test is there."""
    folder = (ROOT / source.path).parent
    for number, line in enumerate(source.text.splitlines(), 1):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            if "://" not in target and not (folder / target).exists():
                yield source.complaint(number, f"links to {target}, which does not exist")
        for path, test in re.findall(r"`((?:src|tests|docs|sim|tools|benchmarks|deploy)/[\w./-]*)(?:::(\w+))?`", line):
            if not (ROOT / path).exists():
                yield source.complaint(number, f"names {path}, which does not exist")
            elif test and not re.search(rf"\b{test}\b", (ROOT / path).read_text()):
                yield source.complaint(number, f"names {test}, which is not in {path}")
