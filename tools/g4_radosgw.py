#!/usr/bin/python3
"""Ceph with its radosgw, as a server of S3's protocol: all of it in one directory and in memory.

Usage: g4_radosgw.py DIRECTORY BUCKET CREDENTIALS_FILE

CREDENTIALS_FILE has two lines: a key id of the form USER:NAME, and its secret. One monitor, one
OSD that keeps objects in its memory, and one radosgw each run in a process of their own, on
loopback, with cephx between them; pools have one replica. When the bucket is made, DIRECTORY/port
gets radosgw's port. All processes end with this one, which ends on SIGTERM, and when one of them
ended.

It takes Debian 12's packages ceph-mon, ceph-osd and radosgw, and reads nothing of /etc/ceph.
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

from g4_swift import end_all, end_with_parent, make_bucket, tell_port, wait_for_end

OSD_BYTES = 2 << 30
COMMAND_SECONDS = 60  # the longest that a command waits for the monitor and the OSD

# `mon max pg per osd`: radosgw makes seven pools, which one OSD has to carry.
CEPH_CONF = """
[global]
fsid = {fsid}
mon host = {mon}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {dir}/keyring
run dir = {dir}
admin socket =
pid file =
log file = {dir}/$name.log
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
[mon]
mon data = {dir}/mon
mon cluster log file = {dir}/cluster.log
[osd]
osd data = {dir}/osd
osd objectstore = memstore
memstore device bytes = {osd_bytes}
"""


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Ceph:
    def __init__(self, directory):
        self.directory = directory
        self.conf = directory / "ceph.conf"
        self.children = {}  # pid -> name

    def run(self, *command, text=None):
        done = subprocess.run([str(word) for word in command], input=text, text=True,
                              stdout=subprocess.PIPE, timeout=COMMAND_SECONDS, check=False)
        if done.returncode != 0:
            sys.exit(f"g4_radosgw: {command[0]} failed with {done.returncode}")
        return done.stdout

    def start(self, name, *options):
        process = subprocess.Popen([name, "--conf", str(self.conf), "-f",
                                    *(str(option) for option in options)],
                                   preexec_fn=end_with_parent)
        self.children[process.pid] = name

    def start_cluster(self):
        v2, v1 = free_ports(2)
        mon = f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]"
        fsid, osd = uuid.uuid4(), uuid.uuid4()
        self.conf.write_text(CEPH_CONF.format(fsid=fsid, mon=mon, dir=self.directory,
                                              osd_bytes=OSD_BYTES))
        for data in ("mon", "osd"):
            (self.directory / data).mkdir()
        keyring, osd_keyring = self.directory / "keyring", self.directory / "osd" / "keyring"
        self.run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.",
                 "--cap", "mon", "allow *")
        self.run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin",
                 "--cap", "mon", "allow *", "--cap", "osd", "allow *")
        self.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", mon,
                 self.directory / "monmap")
        self.run("ceph-mon", "--conf", self.conf, "--mkfs", "-i", "a", "--keyring", keyring,
                 "--monmap", self.directory / "monmap")
        self.start("ceph-mon", "-i", "a")
        key = self.run("ceph-authtool", "--gen-print-key").strip()
        self.run("ceph", "--conf", self.conf, "osd", "new", osd, "-i", "-",
                 text=json.dumps({"cephx_secret": key}))
        self.run("ceph-authtool", "--create-keyring", osd_keyring, "-n", "osd.0",
                 "--add-key", key)
        # Without its UUID the monitor ignores that the OSD booted, and says nothing.
        self.run("ceph-osd", "--conf", self.conf, "-i", 0, "--mkfs", "--osd-uuid", osd,
                 "--keyring", osd_keyring)
        self.start("ceph-osd", "-i", 0, "--keyring", osd_keyring)

    def add_user(self, key_id, secret):
        user, name = key_id.split(":")
        admin = ("radosgw-admin", "--conf", self.conf, "--uid", user)
        self.run(*admin, "user", "create", "--display-name", user, "--access-key", key_id,
                 "--secret", secret)
        # For make_bucket.
        self.run(*admin, "subuser", "create", "--subuser", name, "--key-type", "swift",
                 "--access", "full", "--secret", secret)

    def start_gateway(self):
        port, = free_ports(1)
        # Without tcp_nodelay each answer to a small get takes 40 ms: it waits for our kernel's ACK.
        self.start("radosgw", "-n", "client.admin", "--rgw-frontends",
                   f"beast endpoint=127.0.0.1:{port} tcp_nodelay=1")
        for _ in range(COMMAND_SECONDS * 10):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.1)
        sys.exit("g4_radosgw: radosgw did not start")


def main():
    end_with_parent()
    directory, bucket = pathlib.Path(sys.argv[1]).absolute(), sys.argv[2]
    key_id, secret = pathlib.Path(sys.argv[3]).read_text().split()
    os.umask(0o077)
    directory.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ceph = Ceph(directory)
    try:
        ceph.start_cluster()
        ceph.add_user(key_id, secret)
        port = ceph.start_gateway()
        make_bucket(f"http://127.0.0.1:{port}/auth/1.0", bucket, key_id, secret)
        tell_port(directory, port)
        wait_for_end("g4_radosgw", ceph.children)
    finally:
        end_all(ceph.children)


if __name__ == "__main__":
    main()
