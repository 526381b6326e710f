"""docs/api.md: signatures and docstrings of the public names, and where their source is."""

from __future__ import annotations

import re
import textwrap
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
    package,
    parameters,
)

WIDTH = 110  # of a line of code

HEAD = f"""# API

This page is generated from the docstrings. Import the names from `{PACKAGE}`, those under "The broker"
from `{PACKAGE}.broker`, and the errors from `{PACKAGE}.errors`.

Options, and names that end in `_ms`, are in milliseconds. All other times are in seconds. Timestamps
are milliseconds since the epoch. Sizes are in bytes.
"""
ERRORS = f"""
## Errors

Every error is a `{PACKAGE}.errors.KafkaSinkError`. Its text begins with the code in brackets. Errors
can be pickled. Each code links to its section on the page [Troubleshooting](troubleshooting.md).

"""


def api_page() -> str:
    sections = {**SECTIONS, "The broker": BROKER}
    contents = "".join(f"- {title}: {', '.join(map(_link, names))}\n" for title, names in sections.items())
    entries = (f"\n## {title}\n{''.join(_entry(name, exported(name)) for name in names)}" for title, names in sections.items())
    return f"{HEAD}\n{contents}- [Errors](#errors), [Options](options.md)\n{''.join(entries)}{ERRORS}{_errors()}"


def _link(name: str) -> str:
    return f"[{name}](#{anchor(name)})"


def _entry(name: str, found: Documented) -> str:
    text = f"\n### {name}\n\n{_code(found)}\n{_text(found)}\n{_source(found)}"
    if isinstance(found, griffe.Class):
        text += "".join(f"\n#### {name}.{member.name}\n\n{_code(member)}\n{_text(member)}" for member in methods(found))
    return text


def _source(found: griffe.Object) -> str:
    path = found.relative_package_filepath.as_posix()
    return f"Source: [{path}](../{path})\n"


def _errors() -> str:
    rows = (
        [f"`{kind.name}`", _error_code(kind), ", ".join(f"`{base}`" for base in kind.bases), _summary(kind)] for kind in errors()
    )
    listed = table(["error", "code", "base class", "when"], ([" ".join(cell.split()) for cell in row] for row in rows))
    return f"{listed}\n{_source(package()['errors'])}"


def _summary(kind: griffe.Class) -> str:
    """Returns the docstring of an error up to its first section."""
    text = re.split(r"^(?:Args|Attributes):$", docstring(kind), maxsplit=1, flags=re.MULTILINE)[0]
    return plain(text)


def _error_code(kind: griffe.Class) -> str:
    code = kind.members.get("code")
    if not isinstance(code, griffe.Attribute):
        return ""
    name = str(code.value)[1:-1]
    return f"[`{name}`](troubleshooting.md#{anchor(name)})"


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
    """Returns parameters as the source has them."""
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
    """Returns the docstring as Markdown. Its sections become lists."""
    if described.docstring is None:
        return ""
    names = [] if isinstance(described, griffe.Attribute) else [parameter.name for parameter in parameters(described)]
    if isinstance(described, griffe.Class):
        names += [field.name for field in fields(described)]
    sections = griffe.parse_google(described.docstring, returns_named_value=False, returns_multiple_items=False, warnings=False)
    return "\n".join(filter(None, (_section(section, names) for section in sections)))


def _section(section: griffe.DocstringSection, names: Sequence[str]) -> str:
    """Returns a section of a docstring. names: the parameters and fields that have a separate line."""
    if isinstance(section, griffe.DocstringSectionText):
        return "\n".join(_paragraph(text, names) for text in section.value.split("\n\n"))
    if isinstance(section, griffe.DocstringSectionParameters | griffe.DocstringSectionAttributes):
        return "".join(f"- `{item.name}`: {_described(item)}\n" for item in section.value)
    if isinstance(section, griffe.DocstringSectionReturns | griffe.DocstringSectionYields):
        return "".join(f"{section.kind.value.capitalize()}: {_described(item)}\n" for item in section.value)
    if isinstance(section, griffe.DocstringSectionRaises):
        return "Raises:\n\n" + "".join(f"- `{item.annotation}`: {_described(item)}\n" for item in section.value)
    if isinstance(section, griffe.DocstringSectionExamples):
        return "".join(f"```python\n{text}\n```\n" for _, text in section.value)
    if isinstance(section, griffe.DocstringSectionAdmonition):
        return f"**{section.title}**: {_described(section.value)}\n"
    raise ValueError(f"a docstring has a section of the kind {section.kind.value!r}, which docs/api_page.py does not know")


def _paragraph(text: str, names: Sequence[str]) -> str:
    """Returns a paragraph; an indented one is code, after one that ends with `::`."""
    if text.startswith("    "):
        return f"```python\n{textwrap.dedent(text).rstrip()}\n```\n"
    return _itemized(plain(_one_line(re.sub(r"::$", ":", text))), names)


def _described(item: griffe.DocstringElement) -> str:
    return plain(_one_line(item.description))


def _one_line(text: str) -> str:
    """Joins the lines of a paragraph, but keeps the items of a list apart."""
    return re.sub(r"\n\s*(?!\s*- )", " ", text.strip())


def _itemized(paragraph: str, names: Sequence[str]) -> str:
    """Returns a paragraph that says `name: ...` of some names, with a line for each of them."""
    name = "|".join(map(re.escape, names)) or "(?!)"
    before, *parts = re.split(rf"(?:^|(?<=[.;]) )((?:{name})(?:, (?:{name}))*): ", paragraph)
    named = ((which.replace(", ", "`, `"), said.rstrip(";")) for which, said in zip(parts[::2], parts[1::2], strict=True))
    items = [f"- `{which}`: {said}\n" for which, said in named]
    return "\n".join(([f"{before}\n"] if before else []) + (["".join(items)] if items else []))
