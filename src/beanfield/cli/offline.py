"""What the offline commands have in common: exit codes, options, and how faults and interrupts end a command."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from beanfield.cli.options import EXIT_USAGE, Ending
from beanfield.constants import EXIT_DISK, PARTITIONS_MAX, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SLOTS_MAX
from beanfield.io.root import RootFault
from beanfield.wal.disk import DiskFault

EXIT_FINDINGS: Final = 1  # it was done, and something is damaged or lost
EXIT_INTERRUPTED: Final = 130


class Parser(argparse.ArgumentParser):
    """Misuse is an Ending with the exit code of every misuse."""

    def error(self, message: str) -> Any:
        raise Ending(EXIT_USAGE, err=f"{self.prog}: {message}\nUse: {self.prog} --help shows all options\n")


def new_parser(program: str, arguments: str, text: str, epilog: str) -> Parser:
    parser = Parser(
        prog=program,
        usage=f"{program} {arguments}",
        description=text,
        epilog=epilog,
        add_help=False,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-h", "--help", action="help", help="show this help")
    return parser


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """--help is an Ending too."""
    if "--help" in arguments or "-h" in arguments:
        raise Ending(0, out=parser.format_help())
    return parser.parse_args(arguments)


def number(largest: int) -> Callable[[str], int]:
    """A type for argparse: 1 to `largest`."""

    def convert(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 12 and 1 <= int(text) <= largest):
            raise argparse.ArgumentTypeError(f"not a number from 1 to {largest}: {text}")
        return int(text)

    return convert


def add_shape_options(parser: Parser, partitions: bool) -> None:
    if partitions:
        parser.add_argument(
            "--partitions",
            type=number(PARTITIONS_MAX),
            metavar="N",
            help="shares of the name space, as of serve (256); with 1 job ids are kept",
        )
        parser.add_argument("--slots", type=number(SLOTS_MAX), metavar="N", help="as of serve (a quarter of the cores)")
    parser.add_argument(
        "-s",
        dest="segment_bytes",
        type=number(SEGMENT_BYTES_MAX),
        default=SEGMENT_BYTES_DEFAULT,
        metavar="BYTES",
        help=f"length of the log's segments, as of serve ({SEGMENT_BYTES_DEFAULT})",
    )


def add_quiet_option(parser: Parser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def ended(program: str, command: Callable[[], int]) -> int:
    """The exit code of a command; what ends it early becomes a message. SIGTERM ends it like Ctrl-C: tidily."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return command()
    except RootFault as fault:
        raise Ending(fault.exit_code, err=f"{program}: {fault}\n") from fault
    except KeyboardInterrupt:
        raise Ending(EXIT_INTERRUPTED, err=f"{program}: interrupted\n") from None
    except BrokenPipeError:
        # Whoever read the output has gone; what is still buffered for it has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Ending(EXIT_INTERRUPTED) from None
    except (DiskFault, OSError) as error:
        raise Ending(EXIT_DISK, err=f"{program}: {error}\n") from error


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
