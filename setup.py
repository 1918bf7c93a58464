"""Adds the compiled parts to the metadata of pyproject.toml: the mypyc unit, and what is written in Cython.

Called by build_backend/backend.py, which decides between the builds and works in a copy of the sources.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "build_backend"))

from compiled_modules import compiled_modules  # noqa: E402

NATIVE = ("_reactor", "_sync_thread")


def extensions() -> list[Extension]:
    from Cython.Build import cythonize
    from mypyc.build import mypycify

    # One unit: calls inside it are C calls, so the whole way from bytes in to bytes out belongs to it. Asserts stay:
    # they guard what must never happen, and a process that ends on one is restarted. The name is fixed so that the
    # shared library's does not change with the list of modules.
    unit: list[Extension] = mypycify(
        ["--config-file=pyproject.toml", *compiled_modules(ROOT)],
        opt_level=os.environ.get("BEANFIELD_OPT_LEVEL", "3"),
        debug_level="1",
        strip_asserts=False,
        group_name="beanfield",
    )
    native = [
        Extension(f"beanfield.io.{name}", [f"src/beanfield/io/{name}.pyx"], extra_compile_args=["-O2"])
        for name in NATIVE
    ]
    return unit + cythonize(native, language_level=3)


setup(ext_modules=extensions() if os.environ.get("BEANFIELD_BUILD_COMPILED") == "1" else [])
