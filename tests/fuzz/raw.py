"""Bytes that are hardly HTTP: bad chunks, smuggling, half requests, huge heads, pipelines, and damaged requests."""

from random import Random

from tests.fuzz.case import Case

LINE = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def corpus(path: bytes, body: bytes) -> list[Case]:
    """Known tricks against parsers, on a route that takes `body`."""
    line, length = LINE % path, b"Content-Length: %d\r\n" % len(body)
    chunked, get = b"Transfer-Encoding: chunked\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (len(body), body)
    sent = [
        b"",
        b"\r\n\r\n\r\n",
        b"\0" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET /\r\n",
        b"GET  /health  HTTP/1.1\r\n\r\n",
        b"GET http://evil.example/health HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET //evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\nHost: x\n\n",
        b"GET /health HTTP/1.1\rHost: x\r\r",
        b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /health HTTP/1.1\r\n Host: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%ff%00%0d%0a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 5000 + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nConnection: Upgrade\r\n\r\n",
        get * 50,
        get + b"G" * 30_000,
        line + length + b"\r\n" + body + get,
        line + length + chunked + b"\r\n0\r\n\r\n" + get,
        line + chunked + length + b"\r\n" + chunk + b"0\r\n\r\n",
        line + b"Content-Length: 0\r\n" + length + b"\r\n" + body,
        line + b"Content-Length: +%d\r\n\r\n" % len(body) + body,
        line + b"Content-Length: %d, %d\r\n\r\n" % (len(body), len(body)) + body,
        line + b"Content-Length: 0x10\r\n\r\n" + body,
        line + b"Content-Length: -1\r\n\r\n" + body,
        line + b"Content-Length: 99999999999999999999999\r\n\r\n" + body,
        line + b"Content-Length: 1000000000\r\n\r\n" + body,
        line + b"Transfer-Encoding: xchunked\r\n\r\n" + chunk + b"0\r\n\r\n",
        line + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk + b"0\r\n\r\n",
        line + b"Transfer-Encoding : chunked\r\n\r\n" + chunk + b"0\r\n\r\n",
        line + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + chunk + b"0\r\n\r\n",
        line + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunk + b"0\r\n\r\n",
        line + chunked + b"\r\n" + chunk,
        line + chunked + b"\r\n" + chunk + b"0\r\nX-Trailer: " + b"a" * 40_000 + b"\r\n\r\n",
        line + chunked + b"\r\n" + chunk + b"0\r\nContent-Length: 5\r\n\r\n" + get,
        line + chunked + b"\r\n" + b"%x;%s\r\n" % (len(body), b"a" * 20_000) + body + b"\r\n0\r\n\r\n",
        line + chunked + b"\r\n-1\r\n" + body + b"\r\n0\r\n\r\n",
        line + chunked + b"\r\nffffffffffffffffff\r\n" + body,
        line + chunked + b"\r\n7fffffffffffffff\r\n" + body,
        line + chunked + b"\r\n" + b"1\r\n{\r\n" * 3000,
        line + chunked + b"\r\nzz\r\n" + body,
        line + chunked + b"\r\n%x\n%s\n0\n\n" % (len(body), body),
        line + length + b"Expect: 100-continue\r\n\r\n" + body,
        line + length + b"Expect: 200-ok\r\n\r\n" + body,
        line + length + b"Content-Encoding: gzip\r\n\r\n" + body,
    ]
    cases = [Case("raw", (each,), is_whole=False) for each in sent]
    whole = line + length + b"\r\n" + body
    cases += [Case("raw", (whole[:cut], b""), is_whole=False) for cut in (1, 10, len(line), len(whole) - 1)]
    cases += [Case("raw", tuple(whole[i : i + 1] for i in range(0, min(len(whole), 300))), is_whole=False)]
    return cases


def damaged(sent: bytes, random: Random) -> Case:
    """A request with some bytes changed, in one piece or several, or only its beginning."""
    damaged = bytearray(sent)
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        place = random.randrange(len(damaged) + 1)
        match random.randrange(7):
            case 0:
                damaged[place:place] = random.choice((b"\0", b"\r\n", b"\n", b"\r", b" ", b":", b"\xff", b"%", b"\t"))
            case 1:
                del damaged[place : place + random.choice((1, 2, 10))]
            case 2:
                damaged[place : place + 1] = bytes((random.randrange(256),))
            case 3:
                damaged[place:place] = damaged[random.randrange(len(damaged) + 1) :][:100]
            case 4:
                damaged[place:place] = random.choice((b"\r\nContent-Length: 5", b"\r\nTransfer-Encoding: chunked"))
            case 5:
                damaged[place:place] = bytes((random.randrange(256),)) * random.choice((10, 1000, 20_000))
            case _:
                del damaged[place:]
                damaged = damaged or bytearray(b"G")
    cut = random.randrange(len(damaged) + 1)
    pieces = (bytes(damaged[:cut]), bytes(damaged[cut:])) if random.random() < 0.3 else (bytes(damaged),)
    return Case("raw", pieces, is_whole=False)
