"""The build backend: setuptools, in a copy of the sources, compiled where a C compiler is found.

Three rules, each the answer to a trap:
- Nothing is built in the source tree. A shared library left beside a module silently wins over later edits of it.
- An interpreted build needs neither mypy nor Cython, so the requirements of a build depend on its kind.
- Without a C compiler the build is interpreted and says so in one line. With one, whatever goes wrong is an error: a
  server that is silently ten times slower helps nobody.

BEANFIELD_PURE=1 asks for the interpreted build.
"""

import contextlib
import os
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from compiler import find_compiler, is_compiled, is_pure_asked, missing_for_compiling
from setuptools import build_meta

ROOT = Path(__file__).resolve().parent.parent
# What goes into the copy; a wheel needs no more than the first.
COPIED = ("src", "build_backend", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
SDIST_ONLY = ("docs", "tests", "sim", "tools", "benchmarks", "Makefile")
SDIST_DOCUMENTS = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "STYLE.md")
NO_COMPILER = "beanfield: no C compiler found, so this is the interpreted build (same behaviour, slower)"
COMPILED_FLAG = "BEANFIELD_BUILD_COMPILED"  # how setup.py learns the decision; not for people


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    if not is_compiled(os.environ):
        return []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    # librt and mypy_extensions are looked at while compiling, so the unit is built against the pins it will run with.
    return [*project["dependency-groups"]["compile"], *project["project"]["dependencies"]]


def get_requires_for_build_sdist(config_settings: object = None) -> list[str]:
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: object = None) -> str:
    target = os.path.abspath(metadata_directory)
    with _copy_of_sources(COPIED):
        return build_meta.prepare_metadata_for_build_wheel(target)


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None) -> str:
    target = os.path.abspath(wheel_directory)
    compiled = is_compiled(os.environ)
    if not compiled and not is_pure_asked(os.environ):
        print(NO_COMPILER, file=sys.stderr)
    if compiled and (sentence := missing_for_compiling()):
        sys.exit(f"beanfield: {sentence}")
    with _copy_of_sources(COPIED), _environment(compiled):
        return build_meta.build_wheel(target)


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    target = os.path.abspath(sdist_directory)
    with _copy_of_sources(COPIED + SDIST_ONLY + SDIST_DOCUMENTS):
        return build_meta.build_sdist(target)


@contextlib.contextmanager
def _copy_of_sources(names: tuple[str, ...]) -> Iterator[None]:
    before = os.getcwd()
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "node_modules", ".*")
    with tempfile.TemporaryDirectory(prefix="beanfield-build-") as folder:
        for name in names:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, Path(folder, name), ignore=ignore)
            elif source.exists():
                shutil.copy(source, Path(folder, name))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


@contextlib.contextmanager
def _environment(compiled: bool) -> Iterator[None]:
    added = {}
    if compiled:
        added[COMPILED_FLAG] = "1"
        compiler = find_compiler(os.environ)
        if compiler is not None and compiler != sysconfig.get_config_var("CC"):
            added["CC"] = compiler
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
