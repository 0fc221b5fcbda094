"""Handles of the C ABI. Each is ended once, when it has no user any more."""


class Kept:
    """A handle, kept by its owner and its current users. The last one ends it, in the process that
    got it."""

    def __init__(self, client, handle, end):
        self._client = client  # keeps the library's client alive until this is gone
        self.handle = handle
        self._end = end

    def __del__(self):
        if self.handle is not None and self._client.is_ours():
            self._end(self.handle)


_RELEASED = Kept(None, None, None)


class Handle:
    """Owns a handle until its release, by any thread. A user takes `kept` first and holds it while
    it uses the handle; a release meanwhile ends the handle later."""

    kept = _RELEASED  # also runs for what was never made

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
