"""Floods of HTTP/2 frames against a real daemon: rapid reset and its kin, by a Unix socket, by TLS
without a token, and by a user whom the socket's policy refuses.

    h2_flood_test.py BUILD [unittest arguments]
    KVKEEP_FLOOD_SECONDS=10 KVKEEP_FLOOD_CONNECTIONS=64 h2_flood_test.py BUILD    longer, by more

Whatever a peer sends, the daemon's own memory stays below its earlier size plus twice
limits.call_memory and 100 MiB; calls of other clients go on; a counter moves and a line of the log
names the peer.
"""

import hashlib
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build" / "release"
sys.path[:0] = [str(ROOT / "tests" / "client" / "c"), str(ROOT / "client" / "python")]
os.environ["KVKEEP_CLIENT_LIBRARY"] = str(BUILD / "lib" / "libkvkeep-client.so.1")

import kvkeep  # noqa: E402
from daemon import Daemon, free_port  # noqa: E402

CALL_MEMORY_MIB = 32
MOST_MORE_MIB = 2 * CALL_MEMORY_MIB + 100
SECONDS = float(os.environ.get("KVKEEP_FLOOD_SECONDS", "2"))  # of each flood
CONNECTIONS = int(os.environ.get("KVKEEP_FLOOD_CONNECTIONS", "8"))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
ACK, END_STREAM, END_HEADERS = 1, 1, 4


def frame(kind, flags, stream, payload=b""):
    return (struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) +
            struct.pack(">I", stream) + payload)


def field(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def block(*more):
    return (b"\x83\x86" + field(b":path", b"/kvkeep.v1.KvCache/GetServerInfo") +
            field(b":authority", b"x") + field(b"content-type", b"application/grpc") +
            field(b"te", b"trailers") + b"".join(more))


CALL = block()
LATE_CALL = block(field(b"grpc-timeout", b"1n"))
# The largest entry of HPACK's dynamic table (62), and later only its number.
INDEXED = b"\x40" + bytes([4]) + b"load" + bytes([120]) + b"v" * 120


def begin(stream, end=0, headers=CALL):
    return frame(HEADERS, END_HEADERS | end, stream, headers)


# By name: what one round of a flood sends on a stream, and whether the server's SETTINGS are
# acknowledged.
FLOODS = {
    "rapid reset": (lambda s: begin(s) + frame(RESET, 0, s, struct.pack(">I", 8)), True),
    "window overflow": (lambda s: begin(s) + frame(WINDOW_UPDATE, 0, s, b"\x7f\xff\xff\xff"), True),
    "bad message flag": (lambda s: begin(s) + frame(DATA, 1, s, b"\x07\0\0\0\0"), True),
    "deadline passed": (lambda s: begin(s, headers=LATE_CALL), True),
    "no path": (lambda s: begin(s, END_STREAM, b"\x83\x86"), True),
    "answers unread": (lambda s: begin(s, END_STREAM), True),
    "no acknowledgement": (lambda s: begin(s), False),
    "settings": (lambda s: frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)), True),
    "ping": (lambda s: frame(PING, 0, 0, b"12345678"), True),
    "priority": (lambda s: frame(PRIORITY, 0, s, b"\0\0\0\0\1"), True),
    "window update": (lambda s: frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"), True),
    "empty data": (lambda s: frame(DATA, 0, 1), True),
    "continuation": (lambda s: frame(HEADERS, 0, 1, CALL) if s == 1 else
                     frame(CONTINUATION, 0, 1, field(b"xx", b"v" * 100) * 100), False),
    "endless literal": (lambda s: frame(HEADERS, 0, 1, CALL + b"\0\1a\x7f\x81\xff\xff\xff\3")
                        if s == 1 else frame(CONTINUATION, 0, 1, b"v" * 16384), True),
    "table references": (lambda s: begin(s, END_STREAM, CALL + (INDEXED if s == 1 else
                                                                 b"\xbe" * 8000)), True),
}
READS_NOTHING = {"answers unread"}
# Answered as they come, if the machine is fast enough.
MAY_BE_SERVED = {"no path", "table references", "answers unread"}
# A connection may send 50,000 frames a second that carry nothing. So few connections share this
# process that each can send more.
OF_SMALL_FRAMES = {"settings", "priority", "window update", "empty data"}


class Flood:
    """Some connections that send a flood until it is stopped, and reconnect when cut off."""

    def __init__(self, name, connect, connections):
        self.name, self._connect, self._stopped = name, connect, threading.Event()
        self.sent_bytes = 0
        self._threads = [threading.Thread(target=self._run, daemon=True)
                         for _ in range(connections)]
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stopped.set()
        for thread in self._threads:
            thread.join(timeout=30)

    def _run(self):
        while not self._stopped.is_set():
            try:
                with self._connect() as peer:
                    self._send(peer)
            except OSError:
                pass  # cut off, or refused
            self._stopped.wait(0.01)

    def _send(self, peer):
        make, acknowledges = FLOODS[self.name]
        peer.sendall(PREFACE + frame(SETTINGS, 0, 0))
        peer.settimeout(0.2)
        if acknowledges:
            self._read(peer)
            peer.sendall(frame(SETTINGS, ACK, 0))
        if self.name in OF_SMALL_FRAMES:
            many = make(1) * 4000  # made one by one they might be too few
            while not self._stopped.is_set():
                self._send_all(peer, bytearray(many))
        stream = 1
        while not self._stopped.is_set():
            out = bytearray()
            for _ in range(100):
                out += make(stream)
                stream += 2
            self._send_all(peer, out)

    def _send_all(self, peer, out):
        """Also reads, so that the daemon's answers never block it."""
        while out and not self._stopped.is_set():
            if self.name not in READS_NOTHING:
                peer.setblocking(False)
                self._read(peer)
                peer.settimeout(0.2)
            try:
                sent = peer.send(out[:65536])
            except TimeoutError:
                continue
            del out[:sent]
            self.sent_bytes += sent

    @staticmethod
    def _read(peer):
        try:
            while len(peer.recv(1 << 16)) == 1 << 16:
                pass
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
            pass


def private_mib(pid):
    """Returns the process's memory that is no file's and not shared."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no RssAnon")


class FloodTest(unittest.TestCase):
    def start(self, **settings):
        daemon = Daemon(BUILD / "bin" / "kvkeepd",
                        {"KVKEEP_LIMITS_CALL_MEMORY": f"{CALL_MEMORY_MIB}MiB", **settings})
        self.addCleanup(daemon.__exit__)
        daemon.start()
        return daemon

    def try_flood(self, daemon, name, connect, connections, looks_up=True):
        """Returns how often each kind of hold and cut was counted."""
        counted = self.counters(daemon)
        before = most = private_mib(daemon.process.pid)
        client = kvkeep.Client(daemon.endpoint, path="grpc", timeout=20)
        namespace = client.namespace("m", tokens_per_chunk=16)
        flood = Flood(name, connect, connections)
        answered = 0
        try:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end or (time.monotonic() < end + 30 and
                                             not self.seen(daemon, flood, counted, looks_up)):
                if looks_up:
                    self.assertEqual(namespace.lookup([bytes(32)], timeout=10).error, None)
                    answered += 1
                else:
                    time.sleep(0.01)
                most = max(most, private_mib(daemon.process.pid))
        finally:
            flood.stop()
            client.close()
        moved = self.moved(daemon, counted)
        print(f"{name}: {flood.sent_bytes >> 10} KiB by {connections} connections; {before} MiB, "
              f"at most {most}; {answered} calls of another; {moved}", file=sys.stderr)
        self.assertGreater(flood.sent_bytes, 0)
        self.assertLessEqual(most, before + MOST_MORE_MIB)
        self.assertIsNone(daemon.process.poll())
        return moved

    def seen(self, daemon, flood, counted, counts):
        """Returns whether the flood has begun and, if the gate `counts` it, was held or cut."""
        return flood.sent_bytes and (not counts or flood.name in MAY_BE_SERVED or
                                     self.moved(daemon, counted))

    def moved(self, daemon, counted):
        now = self.counters(daemon)
        return {key: now[key] - counted[key] for key in now if now[key] != counted[key]}

    @staticmethod
    def counters(daemon):
        return {key: value for key, value in daemon.status()["counters"].items()
                if key.startswith(("held_for_", "cut_"))}

    def unix(self, daemon):
        def connect():
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(f"{daemon.dir}/kvkeep.sock")
            return peer
        return connect

    def test_no_flood_by_a_unix_socket_makes_the_daemon_grow(self):
        for name in FLOODS:
            for connections in ((1, 2 * CONNECTIONS) if name == "rapid reset" else
                                (2,) if name in OF_SMALL_FRAMES else (CONNECTIONS,)):
                with self.subTest(flood=name, connections=connections):
                    daemon = self.start()
                    moved = self.try_flood(daemon, name, self.unix(daemon), connections)
                    if name in MAY_BE_SERVED:
                        continue
                    self.assertTrue(moved)
                    self.assertIn(f"pid={os.getpid()} ", daemon.log())

    def test_no_flood_by_tls_makes_the_daemon_grow_before_any_token(self):
        for name in ("rapid reset", "window overflow", "no acknowledgement", "continuation",
                     "ping"):
            with self.subTest(flood=name):
                daemon, connect = self.start_tls()
                self.assertTrue(self.try_flood(daemon, name, connect, CONNECTIONS // 2))

    def start_tls(self):
        scratch = tempfile.TemporaryDirectory(prefix="kvkeep-tls-")
        self.addCleanup(scratch.cleanup)
        files = pathlib.Path(scratch.name)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", files / "key",
             "-out", files / "cert", "-days", "2", "-subj", "/CN=localhost", "-addext",
             "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        (files / "tokens").write_text(hashlib.sha256(b"secret").hexdigest() + "\n")
        for name in ("key", "tokens"):
            (files / name).chmod(0o600)
        port = free_port()
        daemon = self.start(KVKEEP_LISTEN_TCP=f"127.0.0.1:{port}",
                            KVKEEP_LISTEN_TOKEN_FILE=str(files / "tokens"),
                            KVKEEP_TLS_CERT_FILE=str(files / "cert"),
                            KVKEEP_TLS_KEY_FILE=str(files / "key"))
        context = ssl.create_default_context(cafile=str(files / "cert"))
        context.set_alpn_protocols(["h2"])
        return daemon, lambda: context.wrap_socket(
            socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")

    def test_a_refused_user_never_reaches_grpc(self):
        for name in ("rapid reset", "continuation", "ping"):
            with self.subTest(flood=name):
                daemon = self.start(KVKEEP_LISTEN_ALLOWED_UIDS="[12345]")
                before = private_mib(daemon.process.pid)
                self.try_flood(daemon, name, self.unix(daemon), CONNECTIONS, looks_up=False)
                self.assertLess(private_mib(daemon.process.pid), before + 64)
                self.assertIn("connection refused", daemon.log())

    def test_a_client_with_many_calls_is_not_cut_off(self):
        daemon = self.start()
        before = self.counters(daemon)
        with kvkeep.Client(daemon.endpoint, path="grpc", timeout=20) as client:
            namespace = client.namespace("m", tokens_per_chunk=16)
            keys = [bytes([i]) * 32 for i in range(64)]
            threads = [threading.Thread(target=lambda: [namespace.lookup(keys, timeout=20)
                                                        for _ in range(100)]) for _ in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(namespace.lookup(keys, timeout=20).error, None)
        moved = self.counters(daemon)
        self.assertEqual({key: value for key, value in moved.items() if key.startswith("cut_")},
                         {key: value for key, value in before.items() if key.startswith("cut_")})


if __name__ == "__main__":
    unittest.main(verbosity=2)
