"""Common code of the engines' adapters: options, the connection, and when not to ask the daemon.

No engine is imported here. Nothing here waits for longer than a lookup's timeout.
"""

import dataclasses
import threading
import time
from typing import ClassVar, Optional

from kvkeep import errors
from kvkeep.client import Client

_MOST_CHUNK_BYTES = 256 << 20  # accepted by any daemon


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of every adapter, from the engine's flag.

    endpoint: of the daemon; the node's unless given. path: auto, local or grpc.
    name: distinguishes engines that nothing else distinguishes: see each adapter.
    timeout_s: of a batch of loads or stores. lookup_timeout_s: after which a lookup is a miss.
    remote_wait_s: how long a lookup may wait for chunks beyond the node, and a load for the next
    piece of them. It does not wait if nothing lies there or can be asked. 0: no search.
    """

    # Fields in seconds that are above 0 and at most 3600.
    OWN_LIMITS: ClassVar = ("remote_wait_s",)

    endpoint: Optional[str] = None
    path: str = "auto"
    name: Optional[str] = None
    timeout_s: float = 30.0
    lookup_timeout_s: float = 1.0
    remote_wait_s: float = 0.05

    def __post_init__(self):
        if self.remote_wait_s != 0 and not _is_number(self.remote_wait_s, above=0, most=10):
            raise ValueError(f"remote_wait_s: 0 to 10 seconds, not {self.remote_wait_s!r}")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if (field.name.endswith("_s") and field.name not in self.OWN_LIMITS
                    and not _is_number(value, above=0, most=3600)):
                raise ValueError(f"{field.name}: above 0 and up to 3600 seconds, not {value!r}")

    @classmethod
    def of(cls, given):
        """Makes options from a mapping. A ValueError names an unknown key."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(f"unknown options {unknown}; kvkeep has {sorted(known)}")
        return cls(**given)


def _is_number(value, above, most=float("inf")):
    return isinstance(value, (int, float)) and above < value <= most


@dataclasses.dataclass(frozen=True)
class PrefillOptions(Options):
    """Options of adapters that know how many tokens a key covers.

    prefill_tokens_per_s: the engine's speed. With it a chunk that only NVMe has is a miss if
    fetching it saves less than min_saving_s against computing it; this takes one more lookup. None:
    every present chunk is a hit.
    """

    OWN_LIMITS: ClassVar = (*Options.OWN_LIMITS, "prefill_tokens_per_s", "min_saving_s")

    prefill_tokens_per_s: Optional[float] = None
    min_saving_s: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        rate, saving = self.prefill_tokens_per_s, self.min_saving_s
        if rate is not None and not _is_number(rate, above=0):
            raise ValueError(f"prefill_tokens_per_s: above 0, not {rate!r}")
        if saving != 0 and not _is_number(saving, above=0, most=3600):
            raise ValueError(f"min_saving_s: 0 to 3600 seconds, not {saving!r}")


@dataclasses.dataclass(frozen=True)
class LeaseOptions(PrefillOptions):
    """lease_s: how long found chunks are held for an engine that does not release them."""

    lease_s: float = 30.0


def require_name(options, engine):
    """Raises ValueError if the name is missing and nothing of the engine can replace it."""
    if not options.name:
        raise ValueError(
            f'kvkeep: {engine} does not say which weights, adapters, RoPE or version its engines '
            'have: give a "name", another one whenever any of that changes')


def asks_remote(options, tokens_per_key=None):
    """Returns a lookup's arguments for chunks beyond the node: the daemon brings chunks that come
    sooner than they are computed."""
    rate = getattr(options, "prefill_tokens_per_s", None)
    known = rate is not None and tokens_per_key
    return {"remote_wait": options.remote_wait_s,
            "recompute_per_key": min(tokens_per_key / rate, 60) if known else 0}


def keys_worth_loading(options, found, tokens_per_key, together=None):
    """Returns how many of a lookup's keys, counted from the head, are worth a load.

    The leading keys count, and the keys after them that come from beyond the node, which the daemon
    has judged. If reading the leading keys from NVMe saves too little, only the keys before the
    first one that is not in DRAM count. `together`: so many consecutive chunks, which are not parts
    of one key, are useful only as a whole, and count as one key.
    """
    together = together or found.parts
    leading = (found.leading_keys + found.remote_keys) * found.parts // together
    if options.prefill_tokens_per_s is None or found.promotion_us == 0:
        return leading
    in_dram = 0
    while in_dram < leading and all(
            one & found.IN_G2 for one in found.presence[in_dram * together:][:together]):
        in_dram += 1
    computing_s = (leading - in_dram) * tokens_per_key / options.prefill_tokens_per_s
    saving_s = computing_s - found.promotion_us / 1e6
    return leading if saving_s >= options.min_saving_s else in_dram


def connect(options, who, logger):
    """Returns a client with the name `who`, which reports to the engine's log."""
    client = Client(options.endpoint, name=who[:128], path=options.path, timeout=options.timeout_s)
    if client.wait_connected(options.lookup_timeout_s):
        logger.info("kvkeep: %s", client.path.why)
    else:
        logger.warning("kvkeep: the daemon is away; misses until it is there")
    return client


def check_chunk_bytes(client, nbytes, what, timeout=1.0):
    """Raises ValueError if the daemon can never store a chunk of this size. For an adapter's start.

    The message names the chunk (`what`), the limit, and the remedy. While the daemon is away
    nothing is checked. A daemon older than this check reports the limit of all daemons, not its
    memory's."""
    try:
        most = client.server_info(timeout)["max_payload_bytes"]
    except errors.KvkeepError:
        return
    if not 0 < most < nbytes:
        return
    way_out = "give a chunk fewer tokens, or split it into more parts"
    if most < _MOST_CHUNK_BYTES:
        way_out += ("; or let this daemon take larger chunks, by g2.capacity, "
                    "limits.reserved_bytes and limits.leased_bytes")
    raise ValueError(f"kvkeep: {what} has {nbytes} bytes, of which the daemon stores at most "
                     f"{most}: {way_out}")


class NoCalls:
    """In the place of a Breaker, for an engine whose version is not known: no call is made."""

    given_up = 0

    def allows(self):
        return False

    def heard(self, error):
        """No call ends."""


class Breaker:
    """Keeps an engine from waiting for a daemon that hangs.

    After a call that timed out, calls are skipped, except one every `retry_s`. Once such a call is
    answered, all calls are made again. While the daemon is away the client itself fails calls at
    once. Thread-safe.
    """

    def __init__(self, retry_s=5.0, clock=time.monotonic):
        self._retry_s, self._clock = retry_s, clock
        self._lock = threading.Lock()
        self._next = None  # time of the next try; None: closed
        self.given_up = 0  # number of skipped calls

    def allows(self):
        with self._lock:
            if self._next is None:
                return True
            if self._clock() >= self._next:
                self._next = self._clock() + self._retry_s
                return True
            self.given_up += 1
            return False

    def pauses(self):
        """Returns whether calls are skipped now. Not a try, unlike allows."""
        with self._lock:
            return self._next is not None and self._clock() < self._next

    def heard(self, error):
        """Notes that a call has ended with this error, or None."""
        with self._lock:
            if isinstance(error, errors.DeadlineExceeded):
                self._next = self._clock() + self._retry_s
            else:
                self._next = None
