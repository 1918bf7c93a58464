"""`beanfield`: the command with subcommands. `serve` is the server: it listens before anything heavy is imported."""

import os
import sys

from beanfield.cli.options import EXIT_USAGE, Ending, parse_serve, version_text
from beanfield.cli.serve import finish, run

USAGE = """Use: beanfield COMMAND

Commands:
 serve        run the server (beanfield serve --help shows its options)
 bench        measure a server (beanfield bench --help shows its options)
 wal          look at a data root, check it, copy what is readable of it (beanfield wal --help)
 import       copy a beanstalkd binlog into a new data root (beanfield import --help)
 resize       copy a data root into one with another number of slots (beanfield resize --help)

Options:
 --version    show the version and which build this is
 --help       show this help
"""


def main() -> int:
    """The console script."""
    try:
        return _run(sys.argv[1:])
    except Ending as ending:
        return finish(ending)


def _run(arguments: list[str]) -> int:
    command = arguments[0] if arguments else ""
    if command == "serve":
        return run(parse_serve(arguments[1:], dict(os.environ), "beanfield serve"))
    if command == "bench":
        from beanfield.cli import bench

        return bench.main(arguments[1:])
    if command == "wal":
        from beanfield.cli import wal

        return wal.main(arguments[1:])
    if command == "import":
        from beanfield.cli import import_binlog

        return import_binlog.main(arguments[1:])
    if command == "resize":
        from beanfield.cli import resize

        return resize.main(arguments[1:])
    if command in ("-h", "--help", "help"):
        raise Ending(0, out=USAGE)
    if command in ("-v", "--version", "version"):
        raise Ending(0, out=version_text())
    raise Ending(EXIT_USAGE, err=(f"beanfield: unknown command: {command}\n" if command else "") + USAGE)


if __name__ == "__main__":
    sys.exit(main())
