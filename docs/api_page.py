"""docs/api.md: signatures and docstrings of the public names, and where their source is."""

from __future__ import annotations

import re
from collections.abc import Sequence

import griffe

from docs.markdown import anchor, plain, table
from docs.public_names import (
    BROKER,
    PACKAGE,
    SECTIONS,
    Documented,
    Member,
    docstring,
    errors,
    exported,
    fields,
    methods,
    parameters,
)

WIDTH = 110  # of a line of code

HEAD = f"""# API

Made from the docstrings by `make docs`. The names are those of `{PACKAGE}`, under "The broker" those of `{PACKAGE}.broker`,
the errors those of `{PACKAGE}.errors`.
Times are in ms where a name ends in `_ms` and for options, otherwise in seconds; timestamps are ms since the epoch; sizes are
bytes.
"""
ERRORS = f"""
## Errors

All of them are `{PACKAGE}.errors.KafkaSinkError`, begin with their code in brackets, and pickle.

"""


def api_page() -> str:
    sections = {**SECTIONS, "The broker": BROKER}
    contents = "".join(f"- {title}: {', '.join(map(_link, names))}\n" for title, names in sections.items())
    entries = (f"\n## {title}\n{''.join(_entry(name, exported(name)) for name in names)}" for title, names in sections.items())
    return f"{HEAD}\n{contents}- [Errors](#errors), [Options](options.md)\n{''.join(entries)}{ERRORS}{_errors()}"


def _link(name: str) -> str:
    return f"[{name}](#{anchor(name)})"


def _entry(name: str, found: Documented) -> str:
    source = found.relative_package_filepath.as_posix()
    text = f"\n### {name}\n\n{_code(found)}\n{_text(found)}\nSource: [{source}](../{source})\n"
    if isinstance(found, griffe.Class):
        text += "".join(f"\n#### {name}.{member.name}\n\n{_code(member)}\n{_text(member)}" for member in methods(found))
    return text


def _errors() -> str:
    rows = (
        [f"`{kind.name}`", _error_code(kind), ", ".join(f"`{base}`" for base in kind.bases), _text(kind)] for kind in errors()
    )
    return table(["error", "code", "is a", "when"], ([" ".join(cell.split()) for cell in row] for row in rows))


def _error_code(kind: griffe.Class) -> str:
    code = kind.members.get("code")
    return f"`{str(code.value)[1:-1]}`" if isinstance(code, griffe.Attribute) else ""


def _code(described: Documented | Member) -> str:
    if isinstance(described, griffe.Attribute):
        return f"```python\n{described.name}: {described.annotation}\n```\n"
    head = f"class {described.name}" if isinstance(described, griffe.Class) else described.name
    returns = f" -> {described.returns}" if isinstance(described, griffe.Function) else ""
    written = _written(parameters(described))
    listed = f"({', '.join(written)})" if written or returns else ""
    if len(head + listed + returns) > WIDTH:
        listed = "".join(["(\n", *(f"    {part},\n" for part in written), ")"])
    return f"```python\n{head}{listed}{returns}\n```\n"


def _written(taken: Sequence[griffe.Parameter]) -> list[str]:
    """Parameters as they stand in the source."""
    written = []
    for parameter in taken:
        if parameter.kind is griffe.ParameterKind.keyword_only and "*" not in written:
            written.append("*")
        annotation = "" if parameter.annotation is None else f": {parameter.annotation}"
        default = "" if parameter.default is None else f" = {parameter.default}"
        written.append(
            f"**{parameter.name}{annotation}"
            if parameter.kind is griffe.ParameterKind.var_keyword
            else f"{parameter.name}{annotation}{default}"
        )
    return written


def _text(described: Documented | Member) -> str:
    """The docstring. Where it says `name: ...` of parameters or fields, each has a line of its own."""
    names = [] if isinstance(described, griffe.Attribute) else [parameter.name for parameter in parameters(described)]
    if isinstance(described, griffe.Class):
        names += [field.name for field in fields(described)]
    # One line, but for the items of a list.
    paragraphs = (plain(re.sub(r"\n\s*(?!\s*- )", " ", text)) for text in docstring(described).split("\n\n"))
    return "\n".join(_itemized(paragraph, names) for paragraph in paragraphs)


def _itemized(paragraph: str, names: Sequence[str]) -> str:
    name = "|".join(map(re.escape, names)) or "(?!)"
    before, *parts = re.split(rf"(?:^|(?<=[.;]) )((?:{name})(?:, (?:{name}))*): ", paragraph)
    named = ((which.replace(", ", "`, `"), said.rstrip(";")) for which, said in zip(parts[::2], parts[1::2], strict=True))
    items = [f"- `{which}`: {said}\n" for which, said in named]
    return "\n".join(([f"{before}\n"] if before else []) + (["".join(items)] if items else []))
