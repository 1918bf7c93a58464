"""What a role core asks of the loop that runs it, beside sending bytes: pairs of one of these and a handle."""

from typing import Final

ACT_CLOSE: Final = 1
ACT_PAUSE: Final = 2
ACT_RESUME: Final = 3
