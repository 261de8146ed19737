"""Look for known weaknesses of what is installed here, with pip-audit. Fails if there are any; where its data cannot be
reached, it says so and passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SECONDS = 300


def main() -> int:
    program = Path(sys.executable).with_name("pip-audit")
    command = [str(program), "--local", "--skip-editable", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run([*command, "--timeout", "10"], capture_output=True, text=True, timeout=SECONDS)
        found = json.loads(done.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError, TypeError) as error:
        return skipped(f"pip-audit gave no answer ({type(error).__name__})")
    looked_up = [package for package in found if "vulns" in package]
    weak = [package for package in looked_up if package["vulns"]]
    for package in weak:
        for weakness in package["vulns"]:
            fixed = ", ".join(weakness["fix_versions"]) or "no release yet"
            print(f"{package['name']} {package['version']}: {weakness['id']}, fixed in {fixed}")
    if not looked_up:
        return skipped("its data could not be reached")
    unknown = len(found) - len(looked_up)
    print(f"{len(looked_up)} packages looked up, {len(weak)} with known weaknesses, {unknown} not known there.")
    return 1 if weak else 0


def skipped(why: str) -> int:
    print(f"SKIPPED: installed packages were not audited: {why}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
