#!/usr/bin/python3
"""OpenStack Swift with its s3api, as a server of S3's protocol: all of it in one directory.

Usage: g4_swift.py DIRECTORY BUCKET CREDENTIALS_FILE

CREDENTIALS_FILE has two lines: a key id of the form kvkeep:NAME, and its secret. Proxy, account,
container and object server each run in a process of their own, as a real Swift's do, beside a
memcached. All listen on loopback, on ports that the kernel chose; rings have one replica, on one
directory. When the bucket is made, DIRECTORY/port gets the proxy's port. All processes end with
this one, which ends on SIGTERM, and when one of them ended.

It takes Debian 12's packages python3-swift and memcached, and reads nothing of /etc/swift.
"""
import ctypes
import getpass
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

ACCOUNT = "kvkeep"  # the part of the key id before its colon

SWIFT_CONF = """
[swift-hash]
swift_hash_path_suffix = kvkeep-test
[storage-policy:0]
name = one
default = yes
"""

STORAGE_CONF = """
[DEFAULT]
user = {user}
swift_dir = {dir}
devices = {dir}/devices
mount_check = false
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""

# In the order that Swift's own sample has. Without bulk and slo s3api has no multipart uploads.
PROXY_CONF = """
[DEFAULT]
user = {user}
swift_dir = {dir}
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats s3api tempauth bulk slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcache_port}
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{user_name} = {secret} .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
"""


def end_with_parent():
    """Whatever ends who started this process, SIGKILL included, ends it, too."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def listen():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # As Swift does: what it accepts is like this socket.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    return listener


def start_memcached(directory):
    file = directory / "memcached-port"
    command = ["memcached", "-l", "127.0.0.1", "-p", "-1", "-U", "0", "-m", "64"]
    if os.geteuid() == 0:
        command += ["-u", getpass.getuser()]
    process = subprocess.Popen(command, env={**os.environ, "MEMCACHED_PORT_FILENAME": str(file)},
                               preexec_fn=end_with_parent)
    for _ in range(100):
        if file.exists() and (words := file.read_text().split()):
            return process.pid, int(words[-1])
        time.sleep(0.05)
    sys.exit("g4_swift: memcached did not start")


def write_ring(directory, name, port):
    from swift.common.ring import RingBuilder
    builder = RingBuilder(4, 1, 0)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "weight": 1,
                     "device": "d1", "replication_ip": "127.0.0.1", "replication_port": port})
    builder.rebalance()
    builder.get_ring().save(str(directory / f"{name}.ring.gz"))


def serve(path, listener):
    """One of Swift's servers, as one of its own workers runs it."""
    import eventlet.greenio
    from swift.common import utils, wsgi
    conf = wsgi.appconfig(str(path))
    logger = utils.get_logger(conf, path.stem, log_to_console=True, log_route="wsgi")
    utils.eventlet_monkey_patch()
    utils.FALLOCATE_RESERVE, utils.FALLOCATE_IS_PERCENT = 0, False
    global_conf = {"log_name": path.stem}
    if path.stem == "object-server":
        from swift.obj import server
        server.global_conf_callback({}, global_conf)
    wsgi.run_server(conf, logger, eventlet.greenio.GreenSocket(listener), global_conf=global_conf)


def make_bucket(auth_url, bucket, key_id, secret):
    """By Swift's protocol, which wants no signature."""
    ask = urllib.request.Request(auth_url, headers={"X-Auth-User": key_id, "X-Auth-Key": secret})
    with urllib.request.urlopen(ask, timeout=30) as answer:
        token, at = answer.headers["X-Auth-Token"], answer.headers["X-Storage-Url"]
    put = urllib.request.Request(f"{at}/{bucket}", method="PUT", headers={"X-Auth-Token": token})
    urllib.request.urlopen(put, timeout=30).close()


def tell_port(directory, port):
    """To whoever waits for DIRECTORY/port."""
    written = directory / "port.part"
    written.write_text(f"{port}\n")
    written.rename(directory / "port")


def wait_for_end(program, children):
    """Until one of them ends. children: names by process."""
    pid, status = os.wait()
    sys.exit(f"{program}: {children.pop(pid)} ended, status {status}")


def end_all(children):
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def main():
    end_with_parent()
    directory, bucket = pathlib.Path(sys.argv[1]).absolute(), sys.argv[2]
    key_id, secret = pathlib.Path(sys.argv[3]).read_text().split()
    account, user_name = key_id.split(":")
    if account != ACCOUNT:
        sys.exit(f"g4_swift: the key id has to begin with {ACCOUNT}:")
    (directory / "devices" / "d1").mkdir(parents=True)
    (directory / "swift.conf").write_text(SWIFT_CONF)
    # Before anything of Swift looks for the file in /etc/swift.
    from swift.common import utils
    utils.set_swift_dir(str(directory))

    memcached, memcache_port = start_memcached(directory)
    children = {memcached: "memcached"}
    values = {"user": getpass.getuser(), "dir": directory, "memcache_port": memcache_port,
              "account": account, "user_name": user_name, "secret": secret}
    listeners = {name: listen() for name in ("account", "container", "object", "proxy")}
    for name, listener in listeners.items():
        conf = directory / f"{name}-server.conf"
        conf.touch(mode=0o600)
        if name == "proxy":
            conf.write_text(PROXY_CONF.format(**values))
        else:
            conf.write_text(STORAGE_CONF.format(name=name, **values))
            write_ring(directory, name, listener.getsockname()[1])
    for name, listener in listeners.items():
        pid = os.fork()
        if pid == 0:
            end_with_parent()
            for other in listeners.values():
                if other is not listener:
                    other.close()
            serve(directory / f"{name}-server.conf", listener)
            os._exit(1)
        children[pid] = f"{name}-server"
    port = listeners["proxy"].getsockname()[1]
    for listener in listeners.values():
        listener.close()  # so that connections to a server that ended are refused

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        make_bucket(f"http://127.0.0.1:{port}/auth/v1.0", bucket, key_id, secret)
        tell_port(directory, port)
        wait_for_end("g4_swift", children)
    finally:
        end_all(children)


if __name__ == "__main__":
    main()
