"""How far a long offline command is, on a terminal: tqdm's bar on stderr, loaded only when one is to be shown."""

import sys
from typing import Any, Final, TextIO

BYTES: Final = "B"
JOBS: Final = " jobs"


class Progress:
    """A bar, or nothing where stderr is no terminal."""

    def __init__(self, label: str, total: int, unit: str, quiet: bool, stream: TextIO | None = None) -> None:
        self._bar: Any = None
        stream = stream or sys.stderr
        if quiet or not stream.isatty():
            return
        from tqdm import tqdm

        self._bar = tqdm(
            desc=label,
            total=total,
            unit=unit,
            unit_scale=unit == BYTES,
            unit_divisor=1024 if unit == BYTES else 1000,
            file=stream,
            leave=False,
            dynamic_ncols=True,
        )

    def advance(self, amount: int) -> None:
        if self._bar is not None:
            self._bar.update(amount)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
