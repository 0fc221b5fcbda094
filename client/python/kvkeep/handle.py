"""Handles of the C ABI, each of which is ended once, when nobody uses it any more."""


class Kept:
    """A handle, kept by its owner and by everybody who uses it just now; the last one ends it, in
    the process that has it from the daemon."""

    def __init__(self, client, handle, end):
        self._client = client  # keeps the library's client until we are gone
        self.handle = handle
        self._end = end

    def __del__(self):
        if self.handle is not None and self._client.is_ours():
            self._end(self.handle)


_RELEASED = Kept(None, None, None)


class Handle:
    """Has a handle until its release, by any thread. A user takes `kept` first and holds it as long
    as it uses the handle: a release meanwhile ends the handle later."""

    kept = _RELEASED  # also of what was never made

    def __init__(self, client, handle, end):
        self._client = client
        self.kept = Kept(client, handle, end)

    def release(self):
        self.kept = _RELEASED

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __del__(self):
        self.release()
