"""For all tests: which build they run against, and that it is the installed one.

BEANFIELD_BUILD (set by the make targets) names the build that is meant to be tested; a session that would test another
one does not start.
"""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Tests are the same on every run; `HYPOTHESIS_PROFILE=explore` looks for new examples.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_sessionstart(session: pytest.Session) -> None:
    wanted = os.environ.get("BEANFIELD_BUILD")
    if wanted is None:
        return
    from beanfield import build, constants

    if Path(constants.__file__).resolve().is_relative_to(ROOT / "src"):
        pytest.exit(f"the tests would see the source tree, not an installed build: {constants.__file__}", returncode=4)
    if wanted != build.BUILD:
        pytest.exit(f"meant to test the {wanted} build, but {constants.__file__} is {build.BUILD}", returncode=4)
    if (wanted == "compiled") != (importlib.util.find_spec("beanfield.io._reactor") is not None):
        pytest.exit(f"the native reactor does not belong to the {wanted} build, or is missing from it", returncode=4)
    if os.environ.get("CI") and (missing := what_is_missing()):
        pytest.exit(f"CI leaves out no comparison, and these are missing: {', '.join(missing)}", returncode=4)


def what_is_missing() -> list[str]:
    """What some tests compare with or drive, and what they are left out without on a machine that cannot have it."""
    missing = [command for command in ("beanstalkd", "node") if not shutil.which(command)]
    manifests = [path for path in (ROOT / "tests").rglob("package.json") if "node_modules" not in path.parts]
    return missing + [f"{m.parent}/node_modules" for m in manifests if not m.with_name("node_modules").is_dir()]


def pytest_report_header() -> str:
    wanted = os.environ.get("BEANFIELD_BUILD")
    if wanted is None:
        return "beanfield: no build asked for (BEANFIELD_BUILD is not set)"
    from beanfield import build, constants

    return f"beanfield: {build.BUILD} build, {Path(constants.__file__).parent}"
