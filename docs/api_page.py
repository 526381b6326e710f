"""The pages of the API: signatures and docstrings of the public names, and where their source is."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeGuard

import griffe

from docs.markdown import anchor, plain
from docs.public_names import (
    BROKER,
    GIVEN,
    PACKAGE,
    SECTIONS,
    TITLES,
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

NAMES: Mapping[str, Sequence[str]] = {**SECTIONS, "api-broker.md": BROKER}
WIDTH = 110  # of a line of code

HEAD = f"""# API

Import the names from `{PACKAGE}`, those of [the embedded broker](api-broker.md) from
`{PACKAGE}.broker`, and the errors from `{PACKAGE}.errors`. [Options](options.md) have their own pages.

Options, and names that end in `_ms`, are in milliseconds. All other times are in seconds. Timestamps
are milliseconds since the epoch. Sizes are in bytes. A signature without an arrow returns nothing.
These pages are generated from the docstrings.
"""
ERRORS = f"""# Errors

Import the errors from `{PACKAGE}.errors`. They can be pickled. The text of an error begins with its code
in brackets, which links to the meaning, cause and fix on the page [Troubleshooting](troubleshooting.md).
An `except` of a class also catches the classes below it. `LocalError`: the caller asked for something that
cannot be done. `PeerError`: a broker or the registry rejected a request, failed, or sent an invalid response.

"""


def api_page() -> str:
    """Returns the page that lists every public name and links to its entry."""
    lists = (f"\n## [{title}]({page})\n\n{_listed(page)}\n" for page, title in TITLES.items())
    return f"{HEAD}{''.join(lists)}\n## [Errors](api-errors.md)\n\nEvery error, with its code and base class.\n"


def page_of(page: str) -> str:
    """Returns the page of one theme."""
    return f"# {TITLES[page]}\n{''.join(_entry(name, exported(name)) for name in NAMES[page])}"


def errors_page() -> str:
    return f"{ERRORS}{_errors()}"


PAGES: Mapping[str, Callable[[], str]] = {
    "api.md": api_page,
    **{page: partial(page_of, page) for page in TITLES},
    "api-errors.md": errors_page,
}


def _listed(page: str) -> str:
    return ", ".join(f"[{name}]({page}#{anchor(name)})" for name in NAMES[page])


def _entry(name: str, found: Documented) -> str:
    text = f"\n## {name}\n\n" + "\n".join(filter(None, [_code(found), _text(found), _source(found)]))
    if isinstance(found, griffe.Class):
        members = methods(found)
        short = [member for member in members if _is_short(member)]
        text += "\n" * bool(short) + "".join(map(_item, short))
        for member in members:
            if member not in short:
                text += f"\n### {name}.{member.name}\n\n{_code(member)}\n{_text(member)}"
    return text


def _is_short(member: Member) -> bool:
    """Returns whether a member fits into one item of a list: it takes at most one documented parameter, and has no code."""
    described = [section for section in _sections(member) if isinstance(section, griffe.DocstringSectionParameters)]
    return sum(len(section.value) for section in described) <= 1 and "\n\n    " not in docstring(member)


def _item(member: Member) -> str:
    """Returns a property or a small method as an item of a list, with its parameter and errors in the same paragraph."""
    signature = f"{member.name}: {member.annotation}" if isinstance(member, griffe.Attribute) else _signature(member)
    text = " ".join(_inline(section) for section in _sections(member))
    return f"- `{signature}`: {' '.join(text.split())}\n"


def _inline(section: griffe.DocstringSection) -> str:
    if isinstance(section, griffe.DocstringSectionRaises):
        return " ".join(f"Raises `{item.annotation}`: {_described(item)}" for item in section.value)
    if isinstance(section, griffe.DocstringSectionText):
        return plain(section.value)
    return _section(section, {}).replace("\n", " ").removeprefix("- ")


def _source(found: griffe.Object) -> str:
    path = found.relative_package_filepath.as_posix()
    return f"Source: [{path}](../{path})\n"


def _errors() -> str:
    return f"{_below('Exception', 0)}\n{_source(package()['errors'])}"


def _below(base: str, depth: int) -> str:
    """Returns an item for each error whose first base class this is, each with those below it."""
    found = (kind for kind in errors() if str(kind.bases[0]) == base)
    return "".join(f"{'  ' * depth}- {_error(kind)}\n{_below(kind.name, depth + 1)}" for kind in found)


def _error(kind: griffe.Class) -> str:
    others = "".join(f", also `{base}`" for base in kind.bases[1:])
    code = kind.members.get("code")
    if not isinstance(code, griffe.Attribute):
        return f"`{kind.name}`{others}"
    name = str(code.value)[1:-1]
    return f"`{kind.name}`: [`{name}`](troubleshooting.md#{anchor(name)}){others}"


def _code(described: Documented | Member) -> str:
    if isinstance(described, griffe.Attribute):
        return f"```python\n{described.name}: {described.annotation}\n```\n"
    line = _signature(described)
    if line == f"class {described.name}":
        return ""
    if len(line) > WIDTH:
        returns = _returns(described)
        parts = "".join(f"    {part},\n" for part in _written(parameters(described)))
        line = f"{_named(described)}(\n{parts}){returns}"
    return f"```python\n{line}\n```\n"


def _signature(described: Documented) -> str:
    """Returns a call in one line. The fields of a dataclass are in the list of its attributes, not in the call."""
    written = [] if _has_fields(described) else _written(parameters(described))
    listed = f"({', '.join(written)})" if written or isinstance(described, griffe.Function) else ""
    return f"{_named(described)}{listed}{_returns(described)}"


def _named(described: Documented) -> str:
    return f"class {described.name}" if isinstance(described, griffe.Class) else described.name


def _returns(described: Documented) -> str:
    returns = str(described.returns) if isinstance(described, griffe.Function) else "None"
    return "" if returns == "None" else f" -> {returns}"


def _has_fields(described: Documented | Member) -> TypeGuard[griffe.Class]:
    """Returns whether the attributes of a class are the parameters of its constructor."""
    return isinstance(described, griffe.Class) and ("dataclass" in described.labels or "NamedTuple" in map(str, described.bases))


def _declared(described: griffe.Class) -> dict[str, str]:
    """Returns the type and the default value of each field. Values that a call makes, such as empty lists, are left out."""
    declared = {}
    for field in fields(described):
        value = str(field.value or "") if isinstance(field, griffe.Attribute) and described.name not in GIVEN else ""
        default = f" = {value}" if value and "(" not in value else ""
        declared[field.name] = f": {field.annotation}{default}" if isinstance(field, griffe.Attribute) else ""
    return declared


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
    names = {} if isinstance(described, griffe.Attribute) else {parameter.name: "" for parameter in parameters(described)}
    if isinstance(described, griffe.Class):
        names |= {field.name: "" for field in fields(described)}
    if _has_fields(described):
        names |= _declared(described)
    return "\n".join(filter(None, (_section(section, names) for section in _sections(described))))


def _sections(described: Documented | Member) -> list[griffe.DocstringSection]:
    if described.docstring is None:
        return []
    found = griffe.parse_google(described.docstring, returns_named_value=False, returns_multiple_items=False, warnings=False)
    return [section for section in found if not _says_nothing(section)]


def _says_nothing(section: griffe.DocstringSection) -> bool:
    """Returns whether a section only names the type that the signature has, such as `The DataFrame.`"""
    return isinstance(section, griffe.DocstringSectionReturns) and all(item.description.count(" ") < 2 for item in section.value)


def _section(section: griffe.DocstringSection, names: Mapping[str, str]) -> str:
    """Returns a section of a docstring. names: the parameters and fields that have a separate line, and what else it says."""
    if isinstance(section, griffe.DocstringSectionText):
        return "\n".join(_paragraph(text, names) for text in section.value.split("\n\n"))
    if isinstance(section, griffe.DocstringSectionParameters | griffe.DocstringSectionAttributes):
        return "".join(f"- {_several(item, names)}: {_described(item)}\n" for item in section.value)
    if isinstance(section, griffe.DocstringSectionReturns | griffe.DocstringSectionYields):
        return "".join(f"{section.kind.value.capitalize()}: {_described(item)}\n" for item in section.value)
    if isinstance(section, griffe.DocstringSectionRaises):
        return "Raises:\n\n" + "".join(f"- `{item.annotation}`: {_described(item)}\n" for item in section.value)
    if isinstance(section, griffe.DocstringSectionExamples):
        return "".join(f"```python\n{text}\n```\n" for _, text in section.value)
    if isinstance(section, griffe.DocstringSectionAdmonition):
        return f"**{section.title}**: {_described(section.value)}\n"
    raise ValueError(f"a docstring has a section of the kind {section.kind.value!r}, which docs/api_page.py does not know")


def _several(item: griffe.DocstringElement, names: Mapping[str, str]) -> str:
    """Returns the name of a parameter or field. Of `first, second: text`, griffe takes the second name for a type."""
    name = getattr(item, "name", "")
    every = (name.rstrip(","), *str(item.annotation).strip("()").split(", ")) if name.endswith(",") else (name,)
    return ", ".join(f"`{each}{names.get(each, '')}`" for each in every)


def _paragraph(text: str, names: Iterable[str]) -> str:
    """Returns a paragraph; an indented one is code, after one that ends with `::`."""
    if text.startswith("Threads: "):  # for readers of the code
        return ""
    if text.startswith("    "):
        return f"```python\n{textwrap.dedent(text).rstrip()}\n```\n"
    return _itemized(plain(_one_line(re.sub(r"::$", ":", text))), names)


def _described(item: griffe.DocstringElement) -> str:
    return plain(_one_line(item.description))


def _one_line(text: str) -> str:
    """Joins the lines of a paragraph, but keeps the items of a list apart."""
    return re.sub(r"\n\s*(?!\s*- )", " ", text.strip())


def _itemized(paragraph: str, names: Iterable[str]) -> str:
    """Returns a paragraph that says `name: ...` of some names, with a line for each of them."""
    name = "|".join(map(re.escape, names)) or "(?!)"
    before, *parts = re.split(rf"(?:^|(?<=[.;]) )((?:{name})(?:, (?:{name}))*): ", paragraph)
    named = ((which.replace(", ", "`, `"), said.rstrip(";")) for which, said in zip(parts[::2], parts[1::2], strict=True))
    items = [f"- `{which}`: {said}\n" for which, said in named]
    return "\n".join(([f"{before}\n"] if before else []) + (["".join(items)] if items else []))
