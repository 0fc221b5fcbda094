"""Handles of the C ABI, each of which is ended once."""


class Handle:
    """A handle of the C ABI, ended once, by the process that has it from the daemon."""

    def __init__(self, client, handle, end):
        self._client = client  # keeps the library's client until we are gone
        self.handle = handle
        self._end = end

    def release(self):
        handle, self.handle = self.handle, None
        if handle is not None and self._client.is_ours():
            self._end(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __del__(self):
        self.release()
