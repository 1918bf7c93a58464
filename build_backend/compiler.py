"""Decides which build is made: interpreted when asked for or when there is no C compiler, else compiled.

Standard library only: pip's backend and the tools of a fresh checkout both ask.
"""

import shlex
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path


def is_pure_asked(environ: Mapping[str, str]) -> bool:
    return environ.get("BEANFIELD_PURE", "") not in ("", "0")


def find_compiler(environ: Mapping[str, str]) -> str | None:
    """The C compiler to use: $CC, the one this Python was built with, or a usual name. None: there is none."""
    asked = environ.get("CC")
    candidates = [asked] if asked else [sysconfig.get_config_var("CC"), "cc", "gcc", "clang"]
    for candidate in candidates:
        words = shlex.split(candidate or "")
        if words and shutil.which(words[0], path=environ.get("PATH")):
            return candidate
    return None


def is_compiled(environ: Mapping[str, str]) -> bool:
    return not is_pure_asked(environ) and find_compiler(environ) is not None


def missing_for_compiling() -> str | None:
    """What a compiled build needs beside the compiler and does not find here, as a sentence."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.exists():
        return None
    return f"{header} is missing: install Python's headers (Debian: python3-dev), or build with BEANFIELD_PURE=1"
