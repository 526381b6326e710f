"""Parser for `sasl.jaas.config`, the login line of Java clients.

The grammar is that of Kafka's JaasConfig, which uses Java's StreamTokenizer. This parser accepts some unambiguous text that Java
rejects: a missing final semicolon, unquoted numbers, and the surrounding `KafkaClient { ... };`. It rejects text that Java
silently drops, such as an unclosed quote or `/` outside quotes.

Errors never quote the text: if quotes are wrong, any part of it may belong to the password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.secret import HiddenValues

OPTION: Final = "sasl.jaas.config"

LOGIN_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
    "IAMLoginModule": ("AWS_MSK_IAM",),
}
"""The mechanisms of each login module, by its class name without the package, which depends on shading."""

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

# A reference, ${env:NAME}, is part of a word. Kafka substitutes it before it parses.
_TOKEN: Final = re.compile(
    r"""
      (?P<blank> \s+ | \\ \r?\n | //[^\r\n]* | /\*.*?\*/ )
    | "(?P<double> (?: \\. | [^"\\\r\n] )* )"
    | '(?P<single> (?: \\. | [^'\\\r\n] )* )'
    | (?P<word> (?: \$\{[^}]*\} | [\w.$\-\u0080-\U0010ffff] )+ )
    | (?P<sign> [=;{}] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasConfig:
    """A parsed login line.

    Attributes:
        login_module: class name without the package.
        options: values by name; the repr hides the values.
    """

    login_module: str
    options: Mapping[str, str]

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that the login module supports."""
        return LOGIN_MODULES[self.login_module]


class _Token(NamedTuple):
    """A punctuation character, or the text of a word or quoted string."""

    sign: str
    text: str


def parse_jaas(text: str) -> JaasConfig:
    """Parses `class required name="value" ...;`. References in values are not resolved.

    Raises OptionError if the text is invalid. The error quotes nothing of the text.
    """
    tokens = list(_tokens(text))
    if not tokens:
        raise _wrong("it is empty; must begin with the class of a login module")
    if len(tokens) > 1 and not tokens[0].sign and tokens[1].sign == "{":  # KafkaClient { ... };
        tokens = tokens[2:]
        end = next((place for place, token in enumerate(tokens) if token.sign == "}"), None)
        if end is None:
            raise _wrong("the { after the context name is not closed")
        if any(token.sign != ";" for token in tokens[end + 1 :]):
            raise _wrong("there is more than one login context; only KafkaClient is allowed")
        tokens = tokens[:end]
    end = next((place for place, token in enumerate(tokens) if token.sign == ";"), len(tokens))
    if any(token.sign != ";" for token in tokens[end + 1 :]):
        raise _wrong("there is more than one login module, or text after the final semicolon")
    return _entry(tokens[:end])


def _entry(tokens: list[_Token]) -> JaasConfig:
    if not tokens or tokens[0].sign:
        raise _wrong("it must begin with the class of a login module")
    module = tokens[0].text.rpartition(".")[2]
    if module not in LOGIN_MODULES:
        raise _wrong(f"the login module's class must be one of {', '.join(LOGIN_MODULES)}, in any package")
    if len(tokens) < 2 or tokens[1].text.lower() not in _FLAGS:
        raise _wrong("the login module's class must be followed by `required`")
    options: HiddenValues[str] = HiddenValues()
    rest = tokens[2:]
    for place in range(0, len(rest), 3):
        name, *value = rest[place : place + 3]
        which = f"option {place // 3 + 1} of {module}"
        if name.sign or len(value) < 2 or value[0].sign != "=" or value[1].sign:
            raise _wrong(f'{which} is not name="value"; escape a quote inside a value as \\"')
        options[name.text] = value[1].text
    return JaasConfig(module, options)


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            if text[place] in "\"'":
                raise _wrong('a quoted value must end on the same line; escape a quote inside it as \\", a backslash as \\\\')
            raise _wrong(f"the character at position {place + 1} must be inside quotes")
        place = match.end()
        if match.lastgroup in ("double", "single"):
            yield _Token("", _ESCAPE.sub(_unescaped, match[match.lastgroup]))
        elif match.lastgroup == "word":
            yield _Token("", match[0])
        elif match.lastgroup == "sign":
            yield _Token(match[0], "")


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)


def _wrong(text: str) -> OptionError:
    return OptionError(f"option {OPTION}: {text}", option=OPTION)
