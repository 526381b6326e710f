"""Login lines as people paste them."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.jaas import LOGIN_MODULES, JaasConfig, parse_jaas
from tests.as_java import as_java
from tests.every import every

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER = {"username": "alice", "password": "secret"}

# Java reads these the same.
LINES = {
    f'{PLAIN} required username="alice" password="secret";': USER,
    f"{PLAIN} required username='alice' password='secret';": USER,
    f"{PLAIN} REQUISITE username=alice password=secret ;": USER,
    f'{PLAIN} Sufficient username = "alice"\n  password\t=\r\n"secret"\n;\n': USER,
    f'{PLAIN} optional username="alice" password="a\\"b\\\\c\'d";': {"username": "alice", "password": "a\"b\\c'd"},
    f"{PLAIN} required username=alice password='a\"b\\'c';": {"username": "alice", "password": "a\"b'c"},
    f'{PLAIN} required username="alice" password="\\t\\n\\101\\60x\\477\\q";': {"username": "alice", "password": "\t\nA0x'7q"},
    f'{PLAIN} required username="alice" password="=;{{}}//#/*";': {"username": "alice", "password": "=;{}//#/*"},
    f'// for tests\n{PLAIN} /* a\nb */ required username="alice" // c\n password="secret";': USER,
    f'{PLAIN} required username="" password="";': {"username": "", "password": ""},
    f'{PLAIN} required username="pät€😀" password=gehéim€;': {"username": "pät€😀", "password": "gehéim€"},
    f'{PLAIN} required username=a-b_c.d$e password="x";': {"username": "a-b_c.d$e", "password": "x"},
    f'{PLAIN} required "username"="alice" password="secret";': USER,
    f"{PLAIN} required;": {},
}

# Java refuses these, and they mean one thing only.
KINDER = {
    f'{PLAIN} required username="alice" password="secret"': USER,
    f"{PLAIN} required username=007 password=-1;": {"username": "007", "password": "-1"},
    f'KafkaClient {{ {PLAIN} required username="alice" password="secret"; }};': USER,
    f'{PLAIN} required \\\n  username="alice" \\\n  password="secret" ;': USER,
    f"{PLAIN} required username=alice password=${{file:/a/b:c}};": {"username": "alice", "password": "${file:/a/b:c}"},
    f'{PLAIN} required username="alice" password="secret";;': USER,
}

# Neither takes these, and no error may quote them.
REFUSED = {
    "": "it is empty",
    "   ": "it is empty",
    "hunter2": "the login module's class must be one of PlainLoginModule",
    'required username="hunter2" password="hunter2";': "the login module's class must be one of",
    f'{PLAIN} username="hunter2" password="hunter2";': "must be followed by `required`",
    f'{PLAIN} required username="u" password="hunter2"hunter2";': "must end on the same line",
    f"{PLAIN} required username=u password=hunter2+hunter2;": "the character at position .* must be inside quotes",
    f'{PLAIN} required username="u" password:"hunter2";': "the character at position",
    f'{PLAIN} required username="u" password "hunter2";': "option 2 of PlainLoginModule is not name=",
    f'{PLAIN} required username="u" password=;': "option 2 of PlainLoginModule is not name=",
    f'{PLAIN} required username="u" hunter2;': "option 2 of PlainLoginModule is not name=",
    f'{PLAIN} required username="u"; {PLAIN} required username="v";': "more than one login module",
}
# Java reads these to the end of the line, and drops the rest without a word.
REFUSED_HERE = {
    f'{PLAIN} required username="u" password="hunter2;\n;': "must end on the same line",
    f"{PLAIN} required keyTab=x/etc/hunter2;\n;": "must be inside quotes",
}


@every("line", [*LINES, *KINDER])
def test_a_line_is_read(line: str) -> None:
    assert parse_jaas(line) == JaasConfig("PlainLoginModule", {**LINES, **KINDER}[line])


@every("line", [*REFUSED, *REFUSED_HERE])
def test_what_is_wrong_is_said_and_nothing_is_quoted(line: str) -> None:
    with pytest.raises(OptionError, match=r"^\[OPTION\] option sasl\.jaas\.config: ") as caught:
        parse_jaas(line)
    assert caught.match({**REFUSED, **REFUSED_HERE}[line])
    assert "hunter2" not in str(caught.value)
    assert caught.value.facts == {"option": "sasl.jaas.config"}


@pytest.mark.whole("starts Java three times for lines that the tests here read with the same outcome")
@pytest.mark.java
def test_java_reads_the_same() -> None:
    read = [None if found is None else {name: value for name, value in found.items() if name} for found in javas([*LINES])]
    assert read == list(LINES.values())
    # That a module exists Java finds out later.
    assert {line for line, found in zip(REFUSED, javas([*REFUSED]), strict=True) if found is not None} == set()
    assert [*javas([*KINDER])] == [None] * len(KINDER)


def javas(lines: list[str]) -> list[dict[str, str] | None]:
    return as_java("jaas", lines)


@every(
    "name, module",
    [
        ("org.apache.kafka.common.security.scram.ScramLoginModule", "ScramLoginModule"),
        ("kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule", "PlainLoginModule"),
        ("shadeddatabricks.org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule", "OAuthBearerLoginModule"),
        ("software.amazon.msk.auth.iam.IAMLoginModule", "IAMLoginModule"),
        ("shadeddatabricks.software.amazon.msk.auth.iam.IAMLoginModule", "IAMLoginModule"),
        ("com.sun.security.auth.module.Krb5LoginModule", "Krb5LoginModule"),
    ],
)
def test_a_class_is_known_in_whatever_package_it_is(name: str, module: str) -> None:
    assert parse_jaas(f"{name} required;") == JaasConfig(module, {})
    assert module in LOGIN_MODULES


def test_values_are_hidden() -> None:
    read = parse_jaas(f'{PLAIN} required username="alice" password="hunter2";')
    assert repr(read) == "JaasConfig(login_module='PlainLoginModule', options=<username, password>)"
    assert str(read.options) == repr(read.options) == f"{read.options}" == "<username, password>"
