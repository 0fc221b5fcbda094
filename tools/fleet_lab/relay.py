"""The relay: forwards TCP over links that may be slow, lossy, cut or half-open. A child process.

A link has a port of its own here and one destination. What is set for a link holds for all of its
connections, those that are open included; the bytes of both ways are counted. A way that is shut
reads nothing, so the sender's buffers fill, as if no packet arrived; open again, it goes on.
"""

import asyncio
import contextlib
import dataclasses
import random
import socket
import struct
import threading

from processes import serve

BLOCK_BYTES = 64 << 10
WAITING_BLOCKS = 64  # of one way of a connection, on their way
STALL_S = 0.2  # as long as a lost packet holds up its successors, about: TCP's least timeout
PACE_S = 0.05  # between looks at a rate that may have changed
WAYS = ("there", "back")


@dataclasses.dataclass
class Settings:
    delay_s: float = 0.0  # of each way
    bytes_per_s: int = 0  # of each way, 0: as fast as it goes
    loss: float = 0.0  # share of blocks that wait STALL_S
    shut: tuple = ()  # ways that nothing passes


class Way:
    """One direction of a link, over all of its connections."""

    def __init__(self):
        self.bytes, self.open, self.turn = 0, asyncio.Event(), asyncio.Lock()
        self.open.set()


class Link:
    def __init__(self, host, port):
        self._to, self._settings = (host, port), Settings()
        self.ways = {way: Way() for way in WAYS}
        self._writers, self._chance, self.port = set(), random.Random(0), 0

    async def listen(self, host):
        server = await asyncio.start_server(self._accept, host, 0, limit=BLOCK_BYTES)
        self.port = server.sockets[0].getsockname()[1]

    def set(self, **settings):
        self._settings = Settings(**settings)
        for name, way in self.ways.items():
            (way.open.clear if name in self._settings.shut else way.open.set)()

    def reset(self):
        """Ends all connections by RST."""
        for writer in list(self._writers):
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _accept(self, reader, writer):
        await self.ways["there"].open.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to, limit=BLOCK_BYTES)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        tasks = [asyncio.create_task(self._pass(self.ways["there"], reader, far_writer)),
                 asyncio.create_task(self._pass(self.ways["back"], far_reader, writer))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._writers -= both
        for one in both:
            one.close()

    async def _pass(self, way, reader, writer):
        """Raises when the connection broke; returns when this way of it has ended."""
        blocks = asyncio.Queue(WAITING_BLOCKS)
        sender = asyncio.create_task(self._send(way, blocks, writer))
        stalled_until = 0.0  # a lost packet holds up its own connection alone
        try:
            while block := await reader.read(BLOCK_BYTES):
                if self._settings.bytes_per_s:
                    async with way.turn:
                        await self._pace(len(block))
                settings, now = self._settings, asyncio.get_running_loop().time()
                if settings.loss and self._chance.random() < settings.loss:
                    stalled_until = max(stalled_until, now) + STALL_S
                await self._put(sender, blocks, (max(now, stalled_until) + settings.delay_s, block))
            await self._put(sender, blocks, (0, b""))
            await sender
        finally:
            sender.cancel()

    async def _pace(self, size):
        """Waits as long as the link takes for so many bytes, or until it is made faster."""
        left = size
        while left > 0 and self._settings.bytes_per_s:
            step = min(left, self._settings.bytes_per_s * PACE_S)
            await asyncio.sleep(step / self._settings.bytes_per_s)  # the link's rate
            left -= step

    @staticmethod
    async def _put(sender, blocks, item):
        """Raises what ended the sender, which may take no more."""
        if not sender.done() and not blocks.full():
            return blocks.put_nowait(item)
        put = asyncio.ensure_future(blocks.put(item))
        await asyncio.wait([put, sender], return_when=asyncio.FIRST_COMPLETED)
        if not put.done():
            put.cancel()
            sender.result()
            raise ConnectionError("the other side has closed")

    @staticmethod
    async def _send(way, blocks, writer):
        while True:
            due, block = await blocks.get()
            wait = due - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)  # the link's delay
            await way.open.wait()
            if not block:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            writer.write(block)
            await writer.drain()
            way.bytes += len(block)


class Relay:
    """Links by name. Its methods run in the loop's thread."""

    def __init__(self, host):
        self._host, self._links = host, {}

    async def answer(self, command):
        what = command.pop("do")
        if what == "host":
            self._host = command["host"]
            return {}
        if what == "add":
            link = self._links[command["name"]] = Link(command["host"], command["port"])
            await link.listen(self._host)
            return {"port": link.port}
        if what == "set":
            self._links[command.pop("name")].set(**command)
            return {}
        if what == "reset":
            self._links[command["name"]].reset()
            return {}
        if what == "bytes":
            return {name: {way: one.bytes for way, one in link.ways.items()}
                    for name, link in self._links.items()}
        raise ValueError(f"the relay knows no '{what}'")


def main():
    loop, relay = asyncio.new_event_loop(), Relay("127.0.0.1")
    threading.Thread(target=loop.run_forever, daemon=True).start()
    serve(lambda command: asyncio.run_coroutine_threadsafe(relay.answer(command), loop).result())


if __name__ == "__main__":
    main()
