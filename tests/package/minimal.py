"""Prints constraints for the lowest version that pyproject.toml allows of each dependency and extra that users install.

    python -m tests.package.minimal > constraints-minimal.txt

Tools that only develop the package keep the versions of constraints.txt, because users never install them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
OF_USERS: Final = (
    "spark",
    "tls",
    "aws",
    "azure",
    "gcp",
    "protobuf",
    "json-schema",
    "prometheus",
    "openlineage",
    "opentelemetry",
    "verify",
)
"""The extras whose lower bounds are tried. kerberos has no wheels, so that it is not tried everywhere."""
BOUND_TO_USERS: Final = ("grpcio-status",)
"""Tools whose newest versions need newer ones of the libraries above: pip chooses."""
OWN: Final = "spark-kafka-sink"


def lowest(project: dict[str, object]) -> dict[str, str]:
    """Returns the lower bound of each requirement by name. Raises ValueError if one has none."""
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    dependencies: list[str] = project["dependencies"]  # type: ignore[assignment]
    found: dict[str, str] = {}
    for line in [*dependencies, *(each for extra in OF_USERS for each in optional[extra])]:
        requirement = Requirement(line)
        bounds = [each.version for each in requirement.specifier if each.operator in (">=", "==")]
        if not bounds:
            raise ValueError(f"{line} has no lower bound")
        found[canonicalize_name(requirement.name)] = bounds[0]
    return found


def constraints(project: dict[str, object], pinned: str) -> list[str]:
    """Returns the lines of the constraints. pinned: the text of constraints.txt."""
    bounds = lowest(project)
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    tools = {canonicalize_name(Requirement(each).name) for each in (*optional["dev"], *optional["docs"])} - {OWN}
    lines = [f"{name}=={version}" for name, version in bounds.items()]
    for line in pinned.splitlines():
        name = canonicalize_name(Requirement(line).name)
        if name in tools and name not in bounds and name not in BOUND_TO_USERS:
            lines.append(line)
    return lines


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print("\n".join(constraints(project, (ROOT / "constraints.txt").read_text())))


if __name__ == "__main__":
    main()
