"""TensorRT-LLM: what the connector's two halves share: their process, what they tell each other in
a step, and hooks that do not raise. trtllm_scheduler.py and trtllm_worker.py are the halves.
"""

import concurrent.futures
import dataclasses
import functools
import logging
import os
import threading

from tensorrt_llm._utils import mpi_rank

from kvkeep.engine import check_chunk_bytes, connect
from kvkeep.engine_versions import check_engine
from kvkeep.seldom import SeldomWarnings
from kvkeep.trtllm_identity import check_args, identity_of, options_of_environment, ranks_of
from kvkeep.trtllm_memory import Found

logger = logging.getLogger(__name__)

RETRY_S = 0.5  # between two calls to a daemon that hangs: each one stops the engine
_START_S = 1.0  # how long the engine's start waits for the daemon


@dataclasses.dataclass
class KvkeepMeta:
    """What all ranks do in a step. place: of Found, or None. pages: a page of each layer group."""

    namespace: tuple = ()  # arguments of Client.namespace
    place: tuple = None
    step: int = 0
    loads: list = dataclasses.field(default_factory=list)  # (slot, pages)
    saves: list = dataclasses.field(default_factory=list)  # (request, key, parent, pages)


class Process:
    """What both halves of one process share: options, the connection, namespaces, the pages."""

    _made, _lock = {}, threading.Lock()  # both halves are made at once, on two threads

    @classmethod
    def of(cls, llm_args):
        """Returns the one of these arguments, which both halves get."""
        with cls._lock:
            found = cls._made.get(id(llm_args))
            if found is None or found.closed:
                found = cls._made[id(llm_args)] = cls(llm_args)
            return found

    def __init__(self, llm_args):
        self._kept = llm_args  # or another could get its id
        self.options = options_of_environment()
        check_args(llm_args, self.options)
        self.version = check_engine("tensorrt_llm", logger)
        self.ranks = ranks_of(llm_args)
        self.rank = mpi_rank() if self.ranks > 1 else 0
        self.pages = self.arguments = self.found = None
        self._identity, self.closed = None, False
        self.client = connect(dataclasses.replace(self.options, lookup_timeout_s=_START_S),
                              f"tensorrt_llm rank {mpi_rank()} {os.getpid()}", logger)
        self._opener = concurrent.futures.ThreadPoolExecutor(1, "kvkeep-open")
        self._namespaces, self._warnings = {}, SeldomWarnings(logger)

    def identify(self, llm_args):
        """Finds out what this engine's chunks depend on. For the process of a scheduler's half."""
        self._identity = identity_of(llm_args, self.version, self.options, logger)

    def register(self, pages):
        """Takes the KV memory. Raises ValueError if its chunks can never be kept."""
        configured = self._kept.kv_cache_config.tokens_per_block
        if pages.tokens_per_block != configured:
            raise ValueError(
                f"kvkeep: kv_cache_config.tokens_per_block is {configured}, and this engine's "
                f"blocks have {pages.tokens_per_block}: set it to {pages.tokens_per_block}, or "
                "start without kv_connector_config")
        check_chunk_bytes(self.client, pages.part_bytes,
                          "a block's part (kv_cache_config.tokens_per_block)")
        self.pages = pages
        if self._identity is None:
            return
        try:
            self.found = self.found or Found(self.options.load_bytes, pages.part_bytes, self.ranks)
        except (OSError, ValueError) as why:
            self.warn("nothing is found: no memory for load_bytes", why)
        identity, model = self._identity
        self.arguments = (
            ("model", model), ("tokens_per_chunk", pages.tokens_per_block), ("parts", self.ranks),
            ("bytes_per_part", pages.part_bytes),
            ("layout", f"{identity.layout} trtllm 1: {pages.form}"),
            ("hash_algorithm", "kvkeep trtllm 1 sha256"))
        self.namespace(self.arguments)
        concurrent.futures.wait(self._namespaces.values(), _START_S)

    def namespace(self, arguments):
        """Returns the Namespace, or None while it is opened, which does not wait here."""
        if not arguments:
            return None
        opening = self._namespaces.get(arguments)
        if opening is not None and opening.done():
            if opening.exception() is None:
                return opening.result()
            self.warn("namespace", opening.exception())
            opening = None
        if opening is None:
            self._namespaces[arguments] = self._opener.submit(
                self.client.namespace, **dict(arguments), timeout=_START_S)
        return None

    def warn(self, what, why):
        self._warnings.say(what, "kvkeep: %s: %s", what, why)

    def close(self):
        """Ends the connection. Idempotent."""
        if not self.closed:
            self.closed = True
            self._made.pop(id(self._kept), None)
            self._opener.shutdown()
            self._namespaces.clear()
            self.client.close()


def quiet(instead):
    """Decorates a hook that does not raise: a mistake is logged, and is a miss. instead(): returns
    what the hook returns then."""
    def decorate(hook):
        @functools.wraps(hook)
        def hooked(self, *given, **named):
            try:
                return hook(self, *given, **named)
            except Exception as mistake:  # pylint: disable=broad-except  # it would end the engine
                self.process.warn(hook.__name__, f"{type(mistake).__name__}: {mistake}")
                return instead()
        return hooked
    return decorate
