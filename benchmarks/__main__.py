"""Lets `python -m benchmarks` do what benchmarks/run.py does."""

import sys

from benchmarks.run import main

if __name__ == "__main__":
    sys.exit(main())
