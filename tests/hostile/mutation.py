"""Valid bytes made invalid, by chance that can be repeated."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from random import Random

_NUMBERS = (b"0", b"-1", b"1", b"99999999999999999999", b"ffffffffffffffff", b"2147483648", b"1e9", b"0x10")


def mutated(corpus: Sequence[bytes], tokens: Sequence[bytes], random: Random) -> bytes:
    """Take one of the corpus and cut, flip, insert, repeat, splice and renumber it a few times."""
    data = bytearray(random.choice(corpus))
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(data) + 1)
        match random.randrange(8):
            case 0:
                del data[at:]
            case 1 if data:
                data[at - 1] ^= 1 << random.randrange(8)
            case 2:
                data[at:at] = random.randbytes(random.randint(1, 16))
            case 3:
                data[at:at] = random.choice(tokens) * random.choice((1, 1, 2, 300))
            case 4:
                piece = data[at : at + random.randint(1, 200)]
                data[at:at] = piece * random.choice((1, 2, 50))
            case 5:
                other = random.choice(corpus)
                data[at:] = other[random.randrange(len(other)) :]
            case 6:
                digits = [place for place, byte in enumerate(data) if 0x30 <= byte <= 0x39]
                if digits:
                    place = random.choice(digits)
                    data[place : place + 1] = random.choice(_NUMBERS)
            case _:
                del data[at : at + random.randint(1, 40)]
    return bytes(data[:200_000])


def _reply(body: bytes, *lines: str) -> bytes:
    head = ["HTTP/1.1 200 OK", "Server: x", "Content-Type: text/html; charset=utf-8", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


_PAGE = b"<html><title>t</title><a href=/x>y</a></html>"
REPLIES = (
    _reply(_PAGE, f"Content-Length: {len(_PAGE)}"),
    _reply(_PAGE, "Connection: close"),
    _reply(b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nTrailer: t\r\n\r\n", "Transfer-Encoding: chunked"),
    _reply(gzip.compress(_PAGE), f"Content-Length: {len(gzip.compress(_PAGE))}", "Content-Encoding: gzip"),
    _reply(b"", "Content-Length: 0", "Set-Cookie: a=b; Path=/", "Set-Cookie: c=d"),
    b"HTTP/1.1 301 Moved\r\nLocation: http://h/x?y#z\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n" + _reply(b"ok", "Content-Length: 2"),
    b"HTTP/1.0 404 Not Found\r\n\r\nnothing here",
    b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n',
    b"HTTP/1.1 429 Slow\r\nRetry-After: 5\r\nContent-Length: 0\r\nKeep-Alive: timeout=5\r\n\r\n",
)
REPLY_TOKENS = (
    *(
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b":",
        b";",
        b" ",
        b"\t",
        b"HTTP/1.1 200 OK\r\n",
        b"Content-Length: 5\r\n",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Encoding: br\r\n",
        b"0\r\n\r\n",
        b"\xff\xfe",
        b"Upgrade: h2c\r\n",
    ),
    *(
        b"Connection: upgrade\r\n",
        b"X: " + b"y" * 500 + b"\r\n",
        b"Content-Encoding: zstd, gzip, deflate\r\n",
    ),
)

PAGES = (
    (
        b"<!doctype html><html lang=en><head><title>T</title><meta name=description content='d e'><base href='/b/'></head>"
        b"<body><h1>One</h1><a href='x?y=1&amp;z=2#f' rel='nofollow'>l</a><iframe src=f></iframe><p>text</body></html>"
    ),
    (
        b"<html><head><meta charset=windows-1251><meta name=robots content='noindex, nofollow'><link rel=canonical href=//h/>"
        b"<meta http-equiv=refresh content='5; url=/r'></head><body><svg><a xlink:href=/s><title>x</title></a></svg></body>"
    ),
    b"<table><tr><td><b><i>x</b></i><p><a href=1><a href=2></table><select><option>o</select><template><a href=no></template>",
    b"\xef\xbb\xbf<html><script>var a = '<a href=no>';</script><style>a{}</style><!-- <a href=no> --><h2>\xc3\xa4</h2>",
    "<html><title>\u00e4\u20ac</title><a href='\u00e4'>".encode("utf-16"),
    b"<frameset><frame src=a><frame src=b></frameset><noframes><a href=c></noframes>",
    b"<a href=\"http://[::1]/\"><a href='http://h:99999/'><a href='javascript:x'><a href='data:,x'><a href='//'><a href='\t/ \n'>",
)
PAGE_TOKENS = (
    *(
        b"<",
        b">",
        b"</",
        b"'",
        b'"',
        b"=",
        b"&",
        b"&#x0;",
        b"&#xD800;",
        b"&#99999999;",
        b"<!--",
        b"-->",
        b"<![CDATA[",
        b"]]>",
    ),
    *(
        b"<div>",
        b"<b id=1>",
        b"<p>",
        b"<table>",
        b"<svg>",
        b"<math>",
        b"<template>",
        b"<script>",
        b"<textarea>",
        b"<select>",
    ),
    *(
        b"<meta charset=utf-7>",
        b"<meta charset=utf-16>",
        b"<meta charset=" + b"x" * 300 + b">",
        b"<base href=data:x>",
    ),
    *(
        b"\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\x1b$B",
        b"+ADw-",
        b"<a href=http://",
        b"<h1>",
        b"</h1>",
        b"<title>",
        b"<plaintext>",
    ),
)
CONTENT_TYPES = (
    *("text/html", "text/html; charset=utf-8", "text/html; charset=utf-16", "text/html; charset=utf-7", ""),
    *(
        "text/html; charset=x-user-defined",
        "text/html; charset=iso-2022-jp",
        "text/html;charset=" + "x" * 10_000,
    ),
    *("text/html; charset=gb18030", "text/html; charset='", "application/xhtml+xml; charset=big5"),
)
