"""A router's view of a daemon: the blocks that its events report, read by vLLM's own classes.

A block is what vLLM's routers know: a hash, the hash before it, and the tokens of one block. Needs
an environment with vLLM.
"""

import threading


class EventsHeard:
    """endpoint: the daemon's `events.zmq`, or vLLM's. medium: only blocks of this one, or of all.
    Listens from the first moment on, in a thread."""

    def __init__(self, endpoint, medium=None):
        import msgspec
        import zmq
        from vllm.distributed.kv_events import KVEventBatch

        self._decoder = msgspec.msgpack.Decoder(type=KVEventBatch)
        self._context, self._lock = zmq.Context(), threading.Lock()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.setsockopt(zmq.RCVTIMEO, 100)
        self._socket.connect(endpoint)
        self._again, self._over = zmq.Again, threading.Event()
        self._medium = medium
        self._blocks = {}  # (medium, hash): (hash before it, tokens)
        self.again = 0  # blocks that were reported again while they were there
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def blocks(self):
        """Returns {(hash before it, tokens): hash}, whatever the medium."""
        with self._lock:
            return {block: hashed for (_, hashed), block in self._blocks.items()}

    def matched(self, tokens, block_tokens):
        """Returns how many leading blocks are reported."""
        blocks, before = self.blocks(), None
        for begin in range(0, len(tokens), block_tokens):
            before = blocks.get((before, tuple(tokens[begin:begin + block_tokens])))
            if before is None:
                return begin
        return len(tokens)

    def close(self):
        self._over.set()
        self._thread.join()
        self._socket.close()
        self._context.term()

    def _hear(self):
        while not self._over.is_set():
            try:
                _, _, said = self._socket.recv_multipart()
            except self._again:
                continue
            with self._lock:
                for event in self._decoder.decode(said).events:
                    self._take(event)

    def _take(self, event):
        kind = type(event).__name__
        if self._medium not in (None, getattr(event, "medium", self._medium)):
            return
        if kind == "BlockStored":
            before = event.parent_block_hash
            for at, hashed in enumerate(event.block_hashes):
                tokens = event.token_ids[at * event.block_size:(at + 1) * event.block_size]
                self.again += (event.medium, hashed) in self._blocks
                self._blocks[(event.medium, hashed)] = (before, tuple(tokens))
                before = hashed
        elif kind == "BlockRemoved":
            for hashed in event.block_hashes:
                self._blocks.pop((event.medium, hashed), None)
        else:
            self._blocks.clear()
