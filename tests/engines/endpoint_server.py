"""A chat endpoint for tests that behaves as badly as it is told to; it runs in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

Script = Callable[[int, dict[str, Any]], str]
"""From the number of the request and its body to the name of what happens."""


def good(text: str = "I bet. \\boxed{[bet]}", finish: str = "stop") -> dict[str, Any]:
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }


WRONG_SCHEMAS = {
    "no_choices": {"choices": []},
    "null_text": {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]},
    "list": [1, 2],
    "bad_usage": good() | {"usage": {"prompt_tokens": -5, "completion_tokens": "ten"}},
    "error_object": {"error": {"message": "no"}},
}
STATUS = {"401": "Unauthorized", "429": "Too Many Requests", "500": "Internal Server Error", "302": "Found"}


class Server:
    """What came in, and how many were in flight at once at most."""

    def __init__(self, script: Script) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.most_at_once = 0
        self.port = 0
        self._script = script
        self._now = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = {k.lower(): v for k, _, v in (line.partition(": ") for line in head.splitlines()[1:])}
            self.keys.append(fields.get("authorization", ""))
            body = json.loads(await reader.readexactly(int(fields["content-length"])))
            self.bodies.append(body)
            assert head.startswith("POST /v1/chat/completions ")
            await self._answer(self._script(len(self.bodies), body), writer)
        except ConnectionError:
            pass
        finally:
            self._now -= 1
            writer.close()

    async def _answer(self, kind: str, writer: asyncio.StreamWriter) -> None:
        if kind in STATUS:
            extra = "Retry-After: 0\r\n" if kind == "429" else ""
            writer.write(f"HTTP/1.1 {kind} {STATUS[kind]}\r\n{extra}Content-Length: 2\r\n\r\n{{}}".encode())
        elif kind == "window":
            text = '{"error": {"message": "maximum context length is 8 tokens", "code": "context_length_exceeded"}}'
            writer.write(f"HTTP/1.1 400 Bad\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        elif kind == "truncated":
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"choices": [{"mess')
        elif kind == "half_json":
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"choices": ')
        elif kind == "hang_up":
            pass
        elif kind == "noise":
            writer.write(b"\x00\x01\x02 not http at all\n\n")
        elif kind == "silence":
            await asyncio.sleep(30)
        elif kind == "drip":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            for _ in range(1000):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        elif kind == "endless":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                await writer.drain()
        elif kind == "chunked":
            whole = json.dumps(good()).encode()
            parts = [whole[i : i + 7] for i in range(0, len(whole), 7)]
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n")
        elif kind == "slow":
            await asyncio.sleep(0.15)
            await self._answer("good", writer)
        else:
            said = good(kind.removeprefix("say ")) if kind.startswith("say ") else good(finish=kind)
            content = WRONG_SCHEMAS.get(kind) or (said if kind != "good" else good())
            text = json.dumps(content).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        with contextlib.suppress(ConnectionError):
            await writer.drain()


@contextlib.contextmanager
def running(script: Script | str) -> Iterator[Server]:
    """Run a server whose every reply is of one kind, or what a script says."""
    server = Server(script if callable(script) else lambda number, body: script)
    ready, over, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def main() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()
        async with listening:
            await over.wait()
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def run() -> None:
        loop.run_until_complete(main())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(20)
