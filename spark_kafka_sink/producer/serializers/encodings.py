"""Java's encodings by name, and Python's codec for each: those alone whose bytes are the same, or can be made so.

Compared for every character up to U+2FFFF with Java 17. What is left out (windows-31j, GB18030, ISO-2022-*, ...) differs in
hundreds of characters, or from one Java to the next: a wrong byte that nobody notices is worse than an error.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from functools import cache

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.option import nearest
from spark_kafka_sink.producer.serializers.text_encoders import CodePage, TextEncoder, Utf8, Utf16, Utf32

# Python's name of the codec: Java's name of the same encoding. One byte a character, or two in East Asia's.
_CODE_PAGES: Mapping[str, str] = {
    "ascii": "US-ASCII",
    **{f"iso8859-{part}": f"ISO-8859-{part}" for part in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16)},
    "iso8859-11": "x-iso-8859-11",
    **{f"cp{page}": f"windows-{page}" for page in range(1250, 1259)},
    **{f"cp{page}": f"IBM{page}" for page in (437, 775, 850, 852, 855, 857, 860, 861, 862, 863, 864, 865, 866, 869)},
    **{f"cp{page}": f"IBM{page}" for page in ("037", 500, 1026)},
    "cp737": "x-IBM737",
    "cp858": "IBM00858",
    "cp1140": "IBM01140",
    "koi8-r": "KOI8-R",
    "koi8-u": "KOI8-U",
    "mac-roman": "x-MacRoman",
    "mac-latin2": "x-MacCentralEurope",
    "big5": "Big5",
    "euc_jp": "EUC-JP",
    "shift_jis": "Shift_JIS",
    "euc_kr": "EUC-KR",
    "johab": "x-Johab",
    "gb2312": "GB2312",
    "gbk": "GBK",
    "cp949": "x-windows-949",
}

# Where Java's table has other bytes than Python's; empty: Java cannot write the character.
_DIFFERENCES: Mapping[str, Mapping[str, bytes]] = {
    **{page: {"\n": b"\x15"} for page in ("cp037", "cp500", "cp1026", "cp1140")},
    "big5": {"\u02cd": b"", "\u2574": b"", "\uffe3": b""},
    "euc_jp": {"\u2014": b"\xa1\xbd", "\u2015": b"", "\uff5e": b"\x8f\xa2\xb7"},
    "shift_jis": {"\u2014": b"\x81\x5c", "\u2015": b""},
    "euc_kr": {"\u327e": b"\xa2\xe8"},
    "gbk": {"\u20ac": b"\xa2\xe3", "\u2295": b"", "\u2641": b"\xa8\x92"},
}

# Java writes characters for private use in these, Python does not.
_NO_PRIVATE_USE = frozenset({"gbk", "cp949"})

_UNICODE: Mapping[str, TextEncoder] = {
    "utf-8": Utf8("UTF-8"),
    "utf-16": Utf16("UTF-16", ">", bom=True),
    "utf-16-be": Utf16("UTF-16BE", ">"),
    "utf-16-le": Utf16("UTF-16LE", "<"),
    "utf-32": Utf32("UTF-32", ">"),
    "utf-32-be": Utf32("UTF-32BE", ">"),
    "utf-32-le": Utf32("UTF-32LE", "<"),
}

# Names that only Java has, after what _plain has made of them.
_ALIASES: Mapping[str, str] = {
    "unicode": "utf-16",
    "unicodebig": "utf-16",
    "unicode-1-1-utf-8": "utf-8",
    "iso-10646-ucs-2": "utf-16-be",
    "unicodebigunmarked": "utf-16-be",
    "unicodelittleunmarked": "utf-16-le",
    "default": "ascii",
    "ascii7": "ascii",
    "koi8": "koi8-r",
    "eucjp": "euc_jp",
    "eucjis": "euc_jp",
    "euc-cn": "gb2312",
    "sjis": "shift_jis",
    "windows-936": "gbk",
    "windows-949": "cp949",
    "ms-949": "cp949",
    "ibm00858": "cp858",
    "cp00858": "cp858",
    "ibm01140": "cp1140",
    "cp01140": "cp1140",
    "ksc5601-1987": "euc_kr",
    "ksc-5601": "euc_kr",
    "ksc5601-1992": "johab",
    "maccentraleurope": "mac-latin2",
    "macroman": "mac-roman",
}

# The same name, another encoding: in Java these are x-IBM949 and x-mswin-936.
_ANOTHER_IN_JAVA = frozenset({"949", "cp949", "ms936"})


def encoder(name: str, option: str) -> TextEncoder:
    """What writes text in the encoding that Java calls `name`, in any case. OptionError, naming `option`, if it is not here."""
    codec = _codec(_plain(name))
    if codec in _UNICODE:
        return _UNICODE[codec]
    if codec not in _CODE_PAGES:
        known = [*_CODE_PAGES.values(), *(one.name for one in _UNICODE.values())]
        raise OptionError(
            f"option {option}: no encoding {name!r} that is the same in Java and in Python{nearest(name, known)}", option=option
        )
    return _code_page(codec)


@cache
def _code_page(codec: str) -> CodePage:
    return CodePage(_CODE_PAGES[codec], codec, _DIFFERENCES.get(codec, {}), private_use=codec not in _NO_PRIVATE_USE)


def _codec(name: str) -> str:
    """Python's name of the codec; empty when there is none."""
    if name in _ANOTHER_IN_JAVA:
        return ""
    try:
        return codecs.lookup(_ALIASES.get(name, name)).name
    except (LookupError, ValueError):  # ValueError: a null character
        return ""


def _plain(name: str) -> str:
    """In lower case, without the prefix of names that nobody has registered, and IBM's numbers as Python writes them."""
    name = name.strip().lower().replace("_", "-").removeprefix("x-")
    return re.sub(r"^ibm-?(\d{3,4})$", r"cp\1", re.sub(r"^8859-(\d+)$", r"iso8859-\1", name))
