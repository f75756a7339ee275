"""run.py LILY FILE...: the server tests of these files with pytest. Exits 0 if all pass."""

import pathlib
import sys

import pytest

here = pathlib.Path(__file__).resolve().parent
lily, *files = sys.argv[1:]
sys.exit(pytest.main(["-q", "--tb=short", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=200", f"--rootdir={here}",
                      f"--lily={lily}", *(str(here / name) for name in files)]))
