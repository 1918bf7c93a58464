"""Which build of Beanfield this is: compiled or interpreted, told by what a core module was loaded from.

Says nothing about how it was built; the suffix of the file is the fact. Cheap to import: the command line uses it
before anything else is loaded.
"""

from typing import Final

from beanfield import constants

COMPILED: Final = not constants.__file__.endswith((".py", ".pyc"))
BUILD: Final = "compiled" if COMPILED else "interpreted"
