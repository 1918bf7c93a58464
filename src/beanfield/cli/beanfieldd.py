"""`beanfieldd`: exactly beanstalkd's command line, so that whatever starts beanstalkd can start this instead."""

import os
import sys

from beanfield.cli.options import Ending, parse_beanfieldd
from beanfield.cli.serve import finish, run


def main() -> int:
    """The console script."""
    try:
        return run(parse_beanfieldd(sys.argv[1:], dict(os.environ), "beanfieldd"))
    except Ending as ending:
        return finish(ending)


if __name__ == "__main__":
    sys.exit(main())
