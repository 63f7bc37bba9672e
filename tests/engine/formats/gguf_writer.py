"""Writes GGUF files and their blocks as llama.cpp defines them."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
#: A row's bytes, and the weights that they stand for.
Packed = tuple[bytes, Floats]


def _half(value: float) -> tuple[bytes, float]:
    half = np.float16(value)
    return half.tobytes(), float(half)


def q8_0(x: Floats) -> Packed:
    raw, back = b"", []
    for block in x.reshape(-1, 32):
        d_bytes, d = _half(np.abs(block).max() / 127)
        q = np.clip(np.round(block / d), -127, 127).astype(np.int8)
        raw += d_bytes + q.tobytes()
        back.append(q * np.float32(d))
    return raw, np.concatenate(back)


def q4_0(x: Floats) -> Packed:
    raw, back = b"", []
    for block in x.reshape(-1, 32):
        d_bytes, d = _half(np.abs(block).max() / 7)
        q = np.clip(np.round(block / d) + 8, 0, 15).astype(np.uint8)
        raw += d_bytes + (q[:16] | q[16:] << 4).tobytes()
        back.append((q.astype(np.float32) - 8) * np.float32(d))
    return raw, np.concatenate(back)


def _k(x: Floats, bits: int) -> Packed:
    raw, back = b"", []
    top = (1 << bits) - 1
    for block in x.reshape(-1, 8, 32):
        minima = np.maximum(-block.min(axis=1), 0)
        scales = (np.maximum(block.max(axis=1), 0) + minima) / top
        d_bytes, d = _half(scales.max() / 63)
        m_bytes, dmin = _half(minima.max() / 63)
        sc, m = np.round(scales / d).astype(int), np.round(minima / dmin).astype(int)
        step, low = (d * sc)[:, None], (dmin * m)[:, None]
        q = np.clip(np.round((block + low) / step), 0, top).astype(int)
        packed = [sc[j] | sc[j + 4] >> 4 << 6 for j in range(4)]
        packed += [m[j] | m[j + 4] >> 4 << 6 for j in range(4)]
        packed += [sc[j + 4] & 15 | (m[j + 4] & 15) << 4 for j in range(4)]
        raw += d_bytes + m_bytes + bytes(map(int, packed))
        if bits == 5:
            raw += bytes(int(sum((q[j, i] >> 4) << j for j in range(8))) for i in range(32))
        for pair in range(4):
            raw += bytes(int(q[2 * pair, i] & 15 | (q[2 * pair + 1, i] & 15) << 4) for i in range(32))
        back.append((step * q - low).astype(np.float32).ravel())
    return raw, np.concatenate(back)


def q4_k(x: Floats) -> Packed:
    return _k(x, 4)


def q5_k(x: Floats) -> Packed:
    return _k(x, 5)


def q6_k(x: Floats) -> Packed:
    raw, back = b"", []
    for block in x.reshape(-1, 16, 16):
        scales = np.abs(block).max(axis=1) / 31
        d_bytes, d = _half(scales.max() / 127)
        sc = np.maximum(np.round(scales / d), 1).astype(np.int8)
        step = (d * sc.astype(np.float32))[:, None]
        signed = np.clip(np.round(block / step), -32, 31)
        q = (signed + 32).astype(int).ravel()
        low, high = [], []
        for half in (0, 128):
            a, b, c, e = (q[half + 32 * i : half + 32 * i + 32] for i in range(4))
            low += [*(a & 15 | (c & 15) << 4), *(b & 15 | (e & 15) << 4)]
            high += [*(a >> 4 | b >> 4 << 2 | c >> 4 << 4 | e >> 4 << 6)]
        raw += bytes(map(int, low)) + bytes(map(int, high)) + sc.tobytes() + d_bytes
        back.append((step * signed).astype(np.float32).ravel())
    return raw, np.concatenate(back)


def f32(x: Floats) -> Packed:
    return x.astype(np.float32).tobytes(), x


def f16(x: Floats) -> Packed:
    return x.astype(np.float16).tobytes(), x.astype(np.float16).astype(np.float32)


#: ggml's numbers.
KINDS: Mapping[Callable[[Floats], Packed], int] = {f32: 0, f16: 1, q4_0: 2, q8_0: 8, q4_k: 12, q5_k: 13, q6_k: 14}


def write(
    path: Path, settings: Mapping[str, object], tensors: Mapping[str, tuple[Floats, Callable[[Floats], Packed]]]
) -> dict[str, Floats]:
    """The file, version 3. Returns the weights that it holds."""
    entries, data, back = b"", b"", {}
    for name, (values, pack) in tensors.items():
        rows = [pack(row) for row in values.reshape(-1, values.shape[-1])]
        data += b"\0" * (-len(data) % 32)
        dims = values.shape[::-1]
        entries += _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, KINDS[pack], len(data))
        data += b"".join(raw for raw, _ in rows)
        back[name] = np.stack([row for _, row in rows]).reshape(values.shape)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings))
    head += b"".join(_text(name) + _value(value) for name, value in settings.items()) + entries
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return back


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: object) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case list():
            items = [_value(item) for item in value]
            kind = items[0][:4] if items else struct.pack("<I", 8)
            return struct.pack("<I", 9) + kind + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)
    raise TypeError(value)
