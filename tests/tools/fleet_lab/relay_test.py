#!/usr/bin/env python3
"""The relay's links: what they pass, delay, hold back, cut and count."""

import contextlib
import pathlib
import socket
import sys
import tempfile
import threading
import time
import unittest

import path

from faults import parse
from links import Links
from network import Loopback

ENDS = ("a", "b")
PATIENCE_S = 20
MIB = 1 << 20


class Echo:
    """Sends back what it gets, a connection a thread."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listener.accept()[:1],
                                 daemon=True).start()

    @staticmethod
    def _serve(connection):
        with connection, contextlib.suppress(OSError):
            while got := connection.recv(1 << 16):
                connection.sendall(got)

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # a thread accepts
        self._listener.close()


class RelayTest(unittest.TestCase):
    def setUp(self):
        scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.echo = Echo()
        self.addCleanup(self.echo.close)
        self.links = Links(Loopback(ENDS), ENDS,
                           {"PYTHONPATH": str(path.ROOT / "tools/measure")}, scratch / "log")
        self.addCleanup(self.links.stop)
        self.port = self.links.add("a", "b", "127.0.0.1", self.echo.port)

    def connect(self):
        made = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        self.addCleanup(made.close)
        return made

    def echoed(self, connection, size):
        """How long so many bytes take, there and back."""
        began = time.monotonic()
        sender = threading.Thread(target=connection.sendall, args=(b"x" * size,), daemon=True)
        sender.start()
        left = size
        while left > 0:
            got = connection.recv(1 << 16)
            self.assertTrue(got, "the connection ended")
            left -= len(got)
        return time.monotonic() - began

    def assertSilent(self, connection):
        connection.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            connection.recv(1)
        connection.settimeout(PATIENCE_S)

    def do(self, line):
        fault, = parse("0 " + line, ENDS, 1)
        name = {"half-open": "half_open"}.get(fault.verb, fault.verb)
        more = (fault.settings,) if fault.verb == "slow" else ()
        getattr(self.links, name)(fault.ends, *more)

    def test_passes_and_counts(self):
        self.echoed(self.connect(), MIB)
        self.assertEqual(self.links.moved(), {("a", "b"): MIB, ("b", "a"): MIB})

    def test_delays_each_way(self):
        connection = self.connect()
        self.do("slow a delay=60ms")
        self.assertGreaterEqual(self.echoed(connection, 1), 0.12)
        self.do("heal")
        self.assertLess(min(self.echoed(connection, 1) for _ in range(50)), 0.12)

    def test_limits_the_rate(self):
        connection = self.connect()
        self.do("slow a b rate=2MiB")
        self.assertGreaterEqual(self.echoed(connection, MIB), 0.4)

    def test_a_rate_that_is_lifted_leaves_no_debt(self):
        connections = [self.connect() for _ in range(8)]
        self.do("slow a b rate=8KiB")
        for connection in connections:
            connection.sendall(b"x" * (64 << 10))
        self.do("heal")
        for connection in connections:  # at that rate it would take a minute
            left = 64 << 10
            while left > 0:
                left -= len(connection.recv(left))

    def test_stalls_for_lost_blocks(self):
        connection = self.connect()
        self.do("slow a b loss=1")
        self.assertGreaterEqual(self.echoed(connection, 1), 0.4)

    def test_a_partition_is_silent_and_ends(self):
        connection = self.connect()
        self.echoed(connection, 1)
        self.do("partition a b")
        connection.sendall(b"x")
        self.assertSilent(connection)
        late = self.connect()  # the kernel takes it; nobody answers
        late.sendall(b"y")
        self.assertSilent(late)
        self.do("heal a b")
        self.assertEqual(connection.recv(1), b"x")
        self.assertEqual(late.recv(1), b"y")

    def test_half_open_loses_one_way(self):
        connection = self.connect()
        self.do("half-open b a")
        connection.sendall(b"x")
        deadline = time.monotonic() + PATIENCE_S
        while self.links.moved()[("a", "b")] < 1 and time.monotonic() < deadline:
            time.sleep(0.01)  # for the relay
        self.assertSilent(connection)
        self.assertEqual(self.links.moved(), {("a", "b"): 1, ("b", "a"): 0})

    def test_resets(self):
        connection = self.connect()
        self.echoed(connection, 1)
        self.do("reset b")
        with self.assertRaises(ConnectionResetError):
            connection.recv(1)
        self.echoed(self.connect(), 1)

    def test_nobody_at_the_other_end(self):
        self.echo.close()
        with contextlib.suppress(ConnectionResetError):
            self.assertEqual(self.connect().recv(1), b"")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
