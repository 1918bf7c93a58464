"""python -m sim: see run.py."""

import sys

from sim.run import main

sys.exit(main())
