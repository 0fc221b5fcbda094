"""The bare loop: libcurl's multi interface gets whole objects into memory, puts them from there,
and does nothing else: no checksum, no cipher, no index. It is a client
that does nothing with the bytes.

Libcurl signs, without a payload's digest, as kvkeep does. It reads and writes streams over the
places (fmemopen) by its own functions, one copy each, so nothing of Python runs while bytes move.
It knows of no lookup; one that is asked for makes the connections.
"""

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_long, c_void_p

from arm import Arm, main

BUFFER_BYTES = 512 << 10  # as kvkeep's
POLL_MS = 1000
HTTP_1_1, HTTP_OK, UNBUFFERED, DONE = 2, 200, 2, 1
# Constants of curl.h and multi.h.
WRITE_TO, URL, USER, READ_FROM, HEADERS, SIGNER = 10001, 10002, 10005, 10009, 10023, 10305
UPLOAD, HTTP_VERSION, RECEIVE_BUFFER, UPLOAD_BUFFER, UPLOAD_SIZE = 46, 84, 98, 280, 30115
STATUS, RECEIVED = 0x200002, 0x600008
MAX_KEPT_CONNECTIONS, MAX_CONNECTIONS = 6, 13

_curl, _libc = ctypes.CDLL("libcurl.so.4"), ctypes.CDLL(None)


class _Message(ctypes.Structure):
    _fields_ = [("what", c_int), ("easy", c_void_p), ("code", c_int)]


for function in (_curl.curl_easy_init, _curl.curl_multi_init, _curl.curl_slist_append,
                 _libc.fmemopen):
    function.restype = c_void_p
_curl.curl_multi_info_read.restype = ctypes.POINTER(_Message)
_curl.curl_version.restype = c_char_p


def _slist(*lines):
    found = None
    for line in lines:
        found = c_void_p(_curl.curl_slist_append(found, line))
    return found


class Transfer:
    """Transfer of one object, from or to `place`."""

    def __init__(self, url, options, place, size, puts):
        self.easy = c_void_p(_curl.curl_easy_init())
        self._stream = c_void_p(_libc.fmemopen(c_void_p(place), ctypes.c_size_t(size), b"r+"))
        if not puts:
            _libc.setvbuf(self._stream, None, UNBUFFERED, ctypes.c_size_t(0))
        self._wanted = 0 if puts else size
        for option, value in {**options, URL: c_char_p(url),
                              READ_FROM if puts else WRITE_TO: self._stream}.items():
            if _curl.curl_easy_setopt(self.easy, option, value) != 0:
                raise OSError(f"libcurl does not know option {option}")
        if puts:
            _curl.curl_easy_setopt(self.easy, UPLOAD, c_long(1))
            _curl.curl_easy_setopt(self.easy, UPLOAD_SIZE, c_int64(size))

    def succeeded(self):
        status, received = c_long(), c_int64()
        _curl.curl_easy_getinfo(self.easy, STATUS, ctypes.byref(status))
        _curl.curl_easy_getinfo(self.easy, RECEIVED, ctypes.byref(received))
        return status.value == HTTP_OK and received.value == self._wanted

    def end(self):
        _curl.curl_easy_cleanup(self.easy)
        _libc.fclose(self._stream)


class Bare(Arm):
    version = _curl.curl_version().decode().split()[0]

    def begin(self, size, places, region):
        self._size, self._places = size, places
        self._multi = c_void_p(_curl.curl_multi_init())
        for option in (MAX_CONNECTIONS, MAX_KEPT_CONNECTIONS):
            _curl.curl_multi_setopt(self._multi, option, c_long(self.where.connections))
        self._headers = _slist(b"x-amz-content-sha256: UNSIGNED-PAYLOAD",
                               b"Expect:")  # no round trip before a body
        self._options = {USER: c_char_p(":".join(self.where.keys()).encode()),
                         SIGNER: c_char_p(f"aws:amz:{self.where.region}:s3".encode()),
                         HTTP_VERSION: c_long(HTTP_1_1), HEADERS: self._headers,
                         RECEIVE_BUFFER: c_long(BUFFER_BYTES),
                         UPLOAD_BUFFER: c_long(BUFFER_BYTES)}

    def end(self):
        _curl.curl_multi_cleanup(self._multi)
        _curl.curl_slist_free_all(self._headers)

    def put(self, keys, places):
        self._move_all(keys, places, True)

    def look_up(self, keys):
        return self._move(keys[:len(self._places)], self._places, False)

    def load(self, keys, places):
        self._move_all(keys, places, False)

    def _move_all(self, keys, places, puts):
        moved = self._move(keys, places, puts)
        if moved != len(keys):
            raise OSError(f"{moved} of {len(keys)} chunks were moved")

    def _move(self, keys, places, puts):
        """All at once, over the connections. How many succeeded."""
        base = f"{self.where.endpoint}/{self.where.bucket}/bare/{self._size}"
        transfers = [Transfer(f"{base}/{key.hex()}".encode(), self._options, place, self._size,
                              puts) for key, place in zip(keys, places)]
        for transfer in transfers:
            _curl.curl_multi_add_handle(self._multi, transfer.easy)
        failed, running, left = set(), c_int(1), c_int()
        while running.value:
            if _curl.curl_multi_perform(self._multi, ctypes.byref(running)) != 0:
                raise OSError("libcurl cannot go on")
            while message := _curl.curl_multi_info_read(self._multi, ctypes.byref(left)):
                if message.contents.what == DONE and message.contents.code != 0:
                    failed.add(message.contents.easy)
            if running.value:
                _curl.curl_multi_poll(self._multi, None, 0, POLL_MS, None)
        succeeded = sum(one.succeeded() and one.easy.value not in failed for one in transfers)
        for transfer in transfers:
            _curl.curl_multi_remove_handle(self._multi, transfer.easy)
            transfer.end()
        return succeeded


if __name__ == "__main__":
    main(Bare)
