"""Picks the reactor of this process: the native one if it was built, else the pure twin, else the one on `selectors`.

The environment variable BEANFIELD_REACTOR forces one: `native` (an error if it was not built), `pure` or `selectors`.
"""

import os
import select

REACTOR_VARIABLE = "BEANFIELD_REACTOR"

_wanted = os.environ.get(REACTOR_VARIABLE, "")
if _wanted not in ("", "native", "pure", "selectors"):
    raise RuntimeError(f"{REACTOR_VARIABLE} is {_wanted!r}; it may be native, pure or selectors")

_picked = ""
if _wanted in ("", "native"):
    try:
        from beanfield.io._reactor import CLIENT, LINK, RAW, Reactor

        _picked = "native"
    except ImportError:
        if _wanted == "native":
            raise
if not _picked:
    if _wanted != "selectors" and hasattr(select, "epoll"):
        from beanfield.io.reactor import CLIENT, LINK, RAW, Reactor  # type: ignore[assignment]

        _picked = "pure"
    else:
        from beanfield.io.selectors_reactor import CLIENT, LINK, RAW, Reactor  # type: ignore[assignment]

        _picked = "selectors"

__all__ = ["CLIENT", "LINK", "RAW", "REACTOR_VARIABLE", "Reactor", "build_name"]


def build_name() -> str:
    """`native`, `pure` or `selectors`."""
    return _picked
