"""A POST over HTTP/1.1 on asyncio streams, with a bound on everything that comes back.

One connection a request: against the seconds that a model takes, setting it up does not count.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from spiral_lib.errors import ConfigError

_MAX_HEAD_BYTES = 64 * 1024
_MAX_BODY_BYTES = 4 * 1024 * 1024


class HttpError(Exception):
    """What came back is no complete HTTP reply; ``reason`` is a short code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Status, header fields by lower-case name, and the whole body."""

    status: int
    fields: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where requests go."""

    host: str
    port: int
    path: str
    secure: bool

    @classmethod
    def parse(cls, url: str) -> Target:
        """Return the target of an http or https URL. Raises ConfigError for anything else."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"'{url}' is no URL: {error}") from None
        if parts.username or parts.password:
            raise ConfigError("an endpoint's URL may not hold a user or key; put the key in the environment")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"'{url}' is no URL of an endpoint; write one like https://host/v1")
        secure = parts.scheme == "https"
        return cls(host=parts.hostname, port=port or (443 if secure else 80), path=parts.path, secure=secure)


async def post(target: Target, path: str, fields: Mapping[str, str], body: bytes) -> Reply:
    """Send a body and return the reply. Raises HttpError or OSError; the caller bounds the time."""
    context = ssl.create_default_context() if target.secure else None
    reader, writer = await asyncio.open_connection(target.host, target.port, ssl=context, limit=_MAX_HEAD_BYTES)
    try:
        host = f"[{target.host}]" if ":" in target.host else target.host
        lines = [f"POST {target.path}{path} HTTP/1.1", f"Host: {host}:{target.port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in {**fields, "Content-Length": str(len(body))}.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()
        return await _read(reader)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise HttpError("broken_reply") from error
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Reply:
    status = 100
    while status < 200:  # interim replies
        version, _, rest = (await _line(reader)).partition(" ")
        if not version.startswith("HTTP/1."):
            raise HttpError("no_http")
        status = int(rest[:3])
        fields = await _fields(reader)
    if "chunked" in fields.get("transfer-encoding", "").lower():
        return Reply(status=status, fields=fields, body=await _chunks(reader))
    if "content-length" in fields:
        length = _bounded(int(fields["content-length"]))
        return Reply(status=status, fields=fields, body=await reader.readexactly(length))
    return Reply(status=status, fields=fields, body=await _until_end(reader))


async def _line(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\n")).decode("latin-1").rstrip("\r\n")


async def _fields(reader: asyncio.StreamReader) -> dict[str, str]:
    fields: dict[str, str] = {}
    room = _MAX_HEAD_BYTES
    while line := await _line(reader):
        room -= len(line)
        if room < 0:
            raise HttpError("too_large")
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    return fields


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await _line(reader)).partition(";")[0], 16):
        _bounded(len(body) + size)
        body += await reader.readexactly(size)
        await _line(reader)
    return bytes(body)


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while part := await reader.read(65536):
        body += part
        _bounded(len(body))
    return bytes(body)


def _bounded(size: int) -> int:
    if not 0 <= size <= _MAX_BODY_BYTES:
        raise HttpError("too_large")
    return size
