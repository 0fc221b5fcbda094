#!/usr/bin/env python3
"""A worker of each tag, as the bytes that it sends, against today's daemon by the local socket.

    messages_check.py KVKEEPD [--write]

tests/golden/TAG/messages.txt has a session of that tag's client: what it sends, and what it gets;
`..` stands for a byte that is free. It says hello, opens a namespace, registers memory, puts a
chunk from there, finds it, leases it, and reads its bytes in the arena. Today's daemon must answer
the same. `--write` makes the file of the version that CMakeLists.txt names, unless it is released.
"""

import os
import pathlib
import re
import socket
import struct
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "client" / "c"))

import interfaces_check  # noqa: E402
from daemon import Daemon  # noqa: E402

KVKEEPD = None
PAYLOAD = bytes(range(250)) * 20
KEY = bytes(range(32))
HEADER = struct.Struct("<IHHQ")  # MessageHeader
REPLY_HEAD = 8
BROKEN = ("a worker of {tag} sent {name}, and the daemon answers something else. A version of the "
          "local protocol stays as it is: a new meaning gets a new version (CONTRIBUTING.md, "
          "Compatibility).")

# Requests in their order: name, kind, body, and the parts of the answer (behind its header) that
# are free: first byte and the one behind the last.
HELLO = struct.pack("<IHHII", 0x4c4b564b, 1, 9, 6, 0) + b"golden"
NAMESPACE = struct.pack("<QIIHHHHHHI", 0, 16, 1, 6, 0, 0, 0, 0, 0, 0) + b"golden"
ONE_KEY = struct.pack("<QIHBBII", 0, 1, 0, 0, 0, 0, 0) + KEY
LEASED_KEY = struct.pack("<QIHBBII", 0, 1, 0, 1, 0, 0, 0) + KEY
CHUNK = KEY + bytes(32) + struct.pack("<QIIIIII", 0, 0, len(PAYLOAD), 0, 0, 1, 0)
DIGEST = b"NAMESPACE-DIGEST"  # stands for 16 bytes, which the daemon says
REQUESTS = (
    # From the incarnation to the end: names of this daemon, its limits and clock.
    ("hello", 1, HELLO, [(REPLY_HEAD + 8, 144)]),
    ("open-namespace", 3, NAMESPACE, []),
    ("register-memory", 6, struct.pack("<Q", 8192), []),
    ("put", 10, DIGEST + struct.pack("<II", 1, 1) + CHUNK
     + struct.pack("<IIQ", 1, len(PAYLOAD), 0), []),
    ("lookup", 8, DIGEST + ONE_KEY, []),
    # The lease; the run's segment and offset; the estimate of the time until it is readable.
    ("get", 9, DIGEST + LEASED_KEY, [(8, 16), (74, 78), (82, 90), (90, 98)]),
    ("delete", 15, DIGEST + ONE_KEY, []),
)


class Worker:
    """One session of raw bytes."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.segments = []
        self.memory = os.memfd_create("golden")
        os.pwrite(self.memory, PAYLOAD.ljust(8192, b"\0"), 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        for descriptor in [self.memory, *self.segments]:
            os.close(descriptor)

    def ask(self, message):
        """Sends a message. Returns the answer to it."""
        _, kind, _, number = HEADER.unpack_from(message)
        if kind == 6:
            socket.send_fds(self.socket, [message], [self.memory])
        else:
            self.socket.send(message)
        while True:
            answer, descriptors, _, _ = socket.recv_fds(self.socket, 65536, 253)
            self.segments += descriptors  # in order, behind the two of Welcome
            if HEADER.unpack_from(answer)[3] == number:
                return answer

    def read(self, got):
        """Returns the payload that the answer to get places in a segment."""
        segment, _, offset = struct.unpack_from("<IIQ", got, HEADER.size + 74)
        return os.pread(self.segments[2 + segment], len(PAYLOAD), offset + 4096)


def daemon():
    return Daemon(KVKEEPD, {"KVKEEP_G2_CAPACITY": "32MiB", "KVKEEP_G2_SEGMENT_BYTES": "32MiB",
                            "KVKEEP_G3_PATHS": "[]"})


def write(path):
    """Records a session."""
    lines, digest = [], DIGEST
    with daemon() as node, Worker(f"{node.dir}/local.sock") as worker:
        for number, (name, kind, body, free) in enumerate(REQUESTS, 1):
            body = body.replace(DIGEST, digest)
            message = HEADER.pack(HEADER.size + len(body), kind, 0, number) + body
            answer = worker.ask(message)
            if name == "open-namespace":
                digest = answer[-16:]
            said = [f"{byte:02x}" for byte in answer]
            for first, end in free:
                said[HEADER.size + first:HEADER.size + end] = [".."] * (end - first)
            lines += [f"{name} sends {message.hex()}", f"{name} gets {''.join(said)}"]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


class Messages(unittest.TestCase):
    def session(self, worker, tag, lines):
        for sent, gotten in zip(lines[::2], lines[1::2]):
            name, _, message = sent.split()
            answer = worker.ask(bytes.fromhex(message))
            self.assertRegex(answer.hex(), f"^{gotten.split()[2]}$",
                             BROKEN.format(tag=tag, name=name))
            if name == "get":
                self.assertEqual(worker.read(answer), PAYLOAD)

    def test_a_worker_of_each_tag_gets_the_answers_that_it_knows(self):
        self.assertIn(interfaces_check.version(), interfaces_check.tags())
        for tag in interfaces_check.tags():
            lines = (HERE / tag / "messages.txt").read_text(encoding="ascii").splitlines()
            self.assertEqual(len(lines), 2 * len(REQUESTS))
            with self.subTest(tag=tag), daemon() as node, \
                    Worker(f"{node.dir}/local.sock") as worker:
                self.session(worker, tag, lines)

    def test_the_check_above_can_fail(self):
        path = HERE / interfaces_check.version() / "messages.txt"
        lines = path.read_text(encoding="ascii").splitlines()
        lines[-1] = re.sub(r"01(0*)$", r"02\1", lines[-1])  # two deleted chunks
        with daemon() as node, Worker(f"{node.dir}/local.sock") as worker:
            with self.assertRaisesRegex(AssertionError, "sent delete"):
                self.session(worker, "tag", lines)


def main():
    global KVKEEPD
    KVKEEPD = sys.argv.pop(1)
    if sys.argv[1:] == ["--write"]:
        return write(HERE / interfaces_check.unreleased() / "messages.txt")
    return unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
