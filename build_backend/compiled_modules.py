"""Which modules mypyc compiles, as pyproject.toml's [tool.beanfield] says. Read by setup.py and tests/tidy."""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path


def read_rules(root: Path) -> dict[str, object]:
    rules: dict[str, object] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["beanfield"]
    return rules


def compiled_modules(root: Path) -> list[str]:
    """Paths below `root`, sorted, so that the same sources give the same unit on every machine."""
    rules = read_rules(root)
    kinds = (rules["compiled"], rules["compiled_loops"])
    chosen = [name for name in _names(root) if any(_matches(name, patterns) for patterns in kinds)]
    return [f"src/beanfield/{name}" for name in chosen if not _matches(name, rules["interpreted"])]


def pure_modules(root: Path) -> list[str]:
    """The compiled ones and those that keep the same import rules without being compiled."""
    rules = read_rules(root)
    loops = [f"src/beanfield/{name}" for name in _names(root) if _matches(name, rules["compiled_loops"])]
    also = [f"src/beanfield/{name}" for name in _names(root) if _matches(name, rules["pure_interpreted"])]
    return sorted([*(set(compiled_modules(root)) - set(loops)), *also])


def _names(root: Path) -> list[str]:
    package = root / "src" / "beanfield"
    return sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))


def _matches(name: str, patterns: object) -> bool:
    assert isinstance(patterns, list | dict)
    # A pattern's star stays within a folder, except where it stands for the whole way to a file (*__init__.py).
    return any(fnmatchcase(name, p) and (p.startswith("*") or name.count("/") == p.count("/")) for p in patterns)
