"""The S3 server that all arms use: a versitygw that is started here, or one that is there already.

The access log of versitygw tells how many requests came, whoever sent them. It is written all the
time, for all arms alike. The bucket is called 127 and the server's domain is 0.0.1: so the host
127.0.0.1 is that bucket by virtual-host style, which is all that LMCache's adapter speaks, and no
name has to be resolved; localhost/127 is the same bucket by path style, for everybody else.
"""

import os
import pathlib
import secrets
import subprocess
import time

from processes import Server, free_port, listens

BUCKET, DOMAIN = "127", "0.0.1"
QUIET_S = 0.3  # without a request: then none is on its way any more
PAUSE_S = 0.02  # between two looks at the log
PATIENCE_S = 60
GO_VERSION_FIELDS = 3


class Gateway:
    """versitygw on a directory. `bucket_directory` may be looked at and cleaned."""

    bucket, region = BUCKET, "us-east-1"

    def __init__(self, program, directory):
        directory = pathlib.Path(directory)
        self._objects = directory / "objects"
        self._log = directory / "access.log"
        self._objects.mkdir()
        (self._objects / BUCKET).mkdir()
        key_id, secret = "compare", secrets.token_hex(16)
        self.credentials = directory / "credentials"
        self.credentials.touch(mode=0o600)
        self.credentials.write_text(f"{key_id}\n{secret}\n")
        port = free_port()
        self.endpoint = f"http://localhost:{port}"
        self.version = _version(program)
        self._server = Server(
            "versitygw",
            [program, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet",
             "--virtual-domain", DOMAIN, "--access-log", self._log, "posix", self._objects],
            directory, lambda: listens(port),
            {"ROOT_ACCESS_KEY": key_id, "ROOT_SECRET_KEY": secret})

    def requests(self):
        """All that came so far, once no more come."""
        deadline = time.monotonic() + PATIENCE_S
        seen, since = self._lines(), time.monotonic()
        while time.monotonic() - since < QUIET_S and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            if (lines := self._lines()) != seen:
                seen, since = lines, time.monotonic()
        return seen

    def _lines(self):
        return self._log.read_bytes().count(b"\n") if self._log.exists() else 0

    def names(self):
        """The names of all objects, as files."""
        return {os.path.join(base, name) for base, _, files in os.walk(self._objects / BUCKET)
                for name in files}

    def remove_all_but(self, names):
        for name in self.names() - names:
            os.unlink(name)

    def stop(self):
        self._server.stop()


class OtherServer:
    """One that somebody else started, with an empty bucket: its requests are not counted, and what
    was put stays there."""

    region, version = "us-east-1", "a server that was there"

    def __init__(self, url, credentials):
        self.endpoint, self.bucket = url.rsplit("/", 1)
        self.credentials = credentials

    def requests(self):
        return None

    def names(self):
        return set()

    def remove_all_but(self, names):
        pass

    def stop(self):
        pass


def _version(program):
    """Go knows the version of what it installed; the program itself does not."""
    said = subprocess.run(["go", "version", "-m", program], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, check=False).stdout
    for line in said.splitlines():
        fields = line.split()
        if fields[:1] == ["mod"] and len(fields) >= GO_VERSION_FIELDS:
            return f"versitygw {fields[2]}"
    return "versitygw"
