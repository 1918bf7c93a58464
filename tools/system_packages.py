"""Installs what the tests need from outside Python: Debian's beanstalkd as the oracle, Node.js, and the Node clients.

Installs only what is missing, with apt-get when this is root. What cannot be had there is an error, so that CI never
leaves out a comparison silently. Without root, what is missing is said, and the tests that need it are the poorer.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from project import CACHE, ROOT, lock, run, say

# command: Debian package
DEBIAN = {"beanstalkd": "beanstalkd", "node": "nodejs", "npm": "npm"}


def main() -> None:
    with lock("system"):
        missing = [package for command, package in DEBIAN.items() if not shutil.which(command)]
        if missing:
            _install(missing)
        for manifest in sorted((ROOT / "tests").rglob("package.json")):
            if "node_modules" not in manifest.parts and shutil.which("npm"):
                _install_node_modules(manifest)


def _install(packages: list[str]) -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say(f"the tests need {', '.join(packages)}: install them with your package manager (Debian: apt-get install)")
        return
    say(f"installing {', '.join(packages)} with apt-get")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    # A failed update may still leave usable lists; the install tells.
    subprocess.run(["apt-get", "update", "-q=2"], env=environment, stdin=subprocess.DEVNULL, check=False)
    # Debian starts the service on installation where it can; the tests start their own, on other ports.
    run(["apt-get", "install", "-q=2", "-y", "--no-install-recommends", *packages], env=environment)


def _install_node_modules(manifest: Path) -> None:
    lock_file = manifest.with_name("package-lock.json")
    digest = hashlib.sha256(manifest.read_bytes() + lock_file.read_bytes()).hexdigest()
    stamp = CACHE / f"node-{hashlib.sha256(str(manifest).encode()).hexdigest()[:12]}"
    if (manifest.parent / "node_modules").is_dir() and stamp.exists() and stamp.read_text() == digest:
        return
    say(f"installing the Node packages of {manifest.parent.relative_to(ROOT)}")
    run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], cwd=manifest.parent)
    stamp.write_text(digest)


if __name__ == "__main__":
    main()
