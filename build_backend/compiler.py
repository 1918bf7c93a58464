"""Decides which build is made: interpreted when asked for or when there is no C compiler, else compiled.

Standard library only: pip's backend and the tools of a fresh checkout both ask.
"""

import shlex
import shutil
import sysconfig
from collections.abc import Mapping


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
