"""Beanfield: one logical beanstalkd server spread over the processes of a host."""

from typing import Final

__version__: Final = "0.1.0"
# What clients see in `stats` and `-v`: beanstalkd's own shape (tag, then what was built on it).
PROTOCOL_VERSION: Final = "1.13+beanfield." + __version__
