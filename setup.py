"""Adds the compiled parts to the metadata of pyproject.toml: the mypyc unit and the Cython reactor.

Called by build_backend/backend.py, which decides between the builds and works in a copy of the sources.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "build_backend"))

from compiled_modules import compiled_modules  # noqa: E402

REACTOR = "src/beanfield/io/_reactor.pyx"


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
    reactor = Extension("beanfield.io._reactor", [REACTOR], extra_compile_args=["-O2"])
    return unit + cythonize([reactor], language_level=3)


setup(ext_modules=extensions() if os.environ.get("BEANFIELD_BUILD_COMPILED") == "1" else [])
