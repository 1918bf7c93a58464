"""`python -m beanfield`: the same as the command `beanfield`."""

import sys

from beanfield.cli.main import main

sys.exit(main())
