"""`make audit`: asks whether a pinned version in constraints.txt has a known vulnerability.

pip-audit succeeds without a word if the database knows none of the packages. An audit that looked at nothing must not pass.

Exit codes: 0, no known vulnerability; 1, there are some; 2, the audit could not be done, or not for every package.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PASSED, VULNERABLE, NOT_DONE = 0, 1, 2
_SHOWN: Final = 5


def verdict(dependencies: Sequence[Mapping[str, Any]], pinned: int) -> tuple[int, list[str]]:
    """Returns the exit code and the lines to print.

    Args:
        dependencies: pip-audit's results as JSON objects.
        pinned: number of packages that are to be audited.
    """
    lines = [
        f"{each['name']} {each['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for each in dependencies
        for found in each.get("vulns", ())
    ]
    skipped = [each["name"] for each in dependencies if "skip_reason" in each]
    audited = len(dependencies) - len(skipped)
    if lines:
        return VULNERABLE, [f"{len(lines)} known vulnerabilities:", *lines, f"{audited} of {pinned} packages were audited"]
    if audited < pinned:
        names = ", ".join(skipped[:_SHOWN]) + (", ..." if len(skipped) > _SHOWN else "")
        why = f"; the database has no entry for {names}" if skipped else ""
        return NOT_DONE, [f"the audit was NOT done: {audited} of {pinned} packages were audited{why}"]
    return PASSED, [f"{audited} packages were audited, none has a known vulnerability"]


def main() -> int:
    file = ROOT / "constraints.txt"
    pinned = sum("==" in line for line in file.read_text().splitlines())
    command = [sys.executable, "-m", "pip_audit", "-r", str(file), "--no-deps", "--disable-pip", "-f", "json"]
    done = subprocess.run([*command, "--progress-spinner", "off", *sys.argv[1:]], capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        print(f"the audit was NOT done: pip-audit ended with code {done.returncode}: {reason[-500:]}", file=sys.stderr)
        return NOT_DONE
    code, lines = verdict(found, pinned)
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
