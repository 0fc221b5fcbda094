"""vLLM: tells the content of a request's LoRA adapter, as the engine loaded it.

An engine loads an adapter when it is told to, or at the first request that has it, and keeps it by
number. It may drop the adapter when others need the room, and load it again unseen. It names blocks
by the adapter's name and path. So a number keeps one content until the engine removes it, and a
name with its path keeps one content as long as the engine may have blocks of it. Where files or
requests contradict that, nothing of such requests is found or kept.

Threads of this module look at the files. A request waits for them up to a limit.
"""

import concurrent.futures
import threading
import time

from kvkeep.readers import Readers
from kvkeep.weights import fingerprint, locate, signature

_LOOKS = 1000  # contents read at once, each of another adapter
_READS = 4


class Adapters:
    """timeout_s: how long a request waits at most for its adapter's content. Only one thread, the
    scheduler's, calls methods."""

    UNKNOWN = ""  # no chunk of such a request is found or kept

    def __init__(self, logger, timeout_s=5.0, clock=time.monotonic):
        self._logger, self._timeout_s, self._clock = logger, timeout_s, clock
        self._adapters = {}  # the engine's number: _Adapter
        self._of_blocks = {}  # (name, path): the _Adapters that blocks of this name may be of
        self._mistaken = _Adapter(None, content=self.UNKNOWN)  # one of them, if it may be any
        self._lock, self._warning = threading.Lock(), threading.Lock()
        # Looks are short and come before the engine loads, so they wait for no other look and no
        # read.
        self._looks, self._reads = Readers(_LOOKS), Readers(_READS, timeout_s, clock)
        self.unknown = 0  # requests whose adapter is unknown

    def of(self, lora_request):
        """Returns a Future of the id of its adapter's content, or UNKNOWN. Looks at no file."""
        with self._lock:
            adapter = self._begun(lora_request)
            mistaken = adapter.named != _named(lora_request)
            users = self._of_blocks.setdefault(_named(lora_request)[:2], [])
            user = self._mistaken if mistaken else adapter  # the engine may have either
            if user not in users:
                users.append(user)
            content = Content(adapter, users, self._clock, self._clock() + self._timeout_s,
                              self._gave_up)
            adapter.used = True
        if mistaken:
            self._warn(adapter, "its number is that of another adapter")
            self._settle(self.UNKNOWN, [content])
        elif getattr(lora_request, "load_inplace", False):
            self._refuse(adapter, "the engine loads it anew at each step (load_inplace)")
            self._settle(self.UNKNOWN, [content])
        else:
            self._ask(adapter, content)
        return content

    def loaded(self, lora_request):
        """Notes that the engine is about to load the adapter, unless it has it. May wait for the
        file system, as the engine does next."""
        with self._lock:
            adapter = self._begun(lora_request)
            again = adapter.used or adapter.signature is not None
        if again and not getattr(lora_request, "load_inplace", False):
            return  # the engine keeps what it has
        try:
            path = locate(lora_request.lora_path)
            seen = signature(path)
        except ValueError:  # the engine may download it: the first request finds it
            if again:
                self._refuse(adapter, "it was loaded in place, and is not there")
        except OSError as why:
            self._refuse(adapter, str(why))
        else:
            if not again:
                adapter.signature, adapter.content, adapter.reading = seen, None, True
                self._reads.submit(self._read, adapter, path)
            elif adapter.named != _named(lora_request) or adapter.signature != seen:
                # If that load fails, the engine goes on with the old one.
                self._refuse(adapter, "other files were loaded in place; load them under another "
                                      "path and number")

    def removed(self, lora_id):
        """Notes that the engine has the adapter no more."""
        with self._lock:
            adapter = self._adapters.pop(lora_id, None)
            if adapter is not None:
                adapter.removed = True

    def blocks_gone(self):
        """Notes that the engine has no block from before: its prefix cache was reset and no request
        runs."""
        with self._lock:
            for users in self._of_blocks.values():
                users[:] = [one for one in users if not one.removed]

    def close(self):
        """Stops the threads, without waiting. Idempotent."""
        self._looks.close()
        self._reads.close()

    # ---- under the lock

    def _begun(self, lora_request):
        """Returns the engine's adapter of this number, added if it is new."""
        number = lora_request.lora_int_id
        if number not in self._adapters:
            self._adapters[number] = _Adapter(_named(lora_request))
        return self._adapters[number]

    # ---- on any thread

    def _ask(self, adapter, content):
        now = self._clock()
        with self._lock:
            known = adapter.content == self.UNKNOWN
            hangs = adapter.asked is not None and now - adapter.asked > self._timeout_s
            if not known and not hangs:
                adapter.waiting.append(content)
                look = adapter.asked is None
                if look:
                    adapter.asked = now
        if known or hangs:
            self._settle(self.UNKNOWN, [content])
            self._reads.add_thread()
        elif look:
            self._looks.submit(self._look, adapter)

    def _gave_up(self, adapter):
        """Gives up on an adapter's content when a request goes on without it: the engine may load
        the adapter now, and the files seen later may differ."""
        if adapter.signature is None:
            self._refuse(adapter, f"its files could not be seen within {self._timeout_s:g} s")
        self._warn(adapter, f"its files could not be read within {self._timeout_s:g} s")
        with self._lock:
            self.unknown += 1

    def _look(self, adapter):
        """Looks whether the files are as they were when the engine loaded them, and has new ones
        read."""
        try:
            path = locate(adapter.named[1])
            seen = signature(path)
        except ValueError as why:  # the engine finds nothing there either
            self._warn(adapter, str(why))
            with self._lock:
                waiting = adapter.take_waiting()
            self._settle(self.UNKNOWN, waiting)
            return
        except Exception as why:  # pylint: disable=broad-except  # goes unseen otherwise
            self._refuse(adapter, str(why))
            return
        with self._lock:
            if adapter.signature is None:
                adapter.signature = seen
            changed = adapter.signature != seen
            read = not changed and adapter.content is None and not adapter.reading
            adapter.reading |= read
        if changed:
            self._refuse(adapter, "its files changed after it was loaded; load them under another "
                                  "path")
        elif read:
            self._reads.submit(self._read, adapter, path)
        elif adapter.content is not None:
            self._answer(adapter, adapter.content)  # else _read does

    def _read(self, adapter, path):
        try:
            content = fingerprint(path).id
            changed = signature(path) != adapter.signature
        except Exception as why:  # pylint: disable=broad-except  # goes unseen otherwise
            self._refuse(adapter, str(why))
            return
        if changed:
            self._refuse(adapter, "its files changed while it was loaded")
            return
        self._answer(adapter, f"{content} 3d" if adapter.named[2] else content)

    def _refuse(self, adapter, why):
        """Refuses the adapter for good: the engine may have another content than its files."""
        self._warn(adapter, why)
        self._answer(adapter, self.UNKNOWN)

    def _answer(self, adapter, content):
        """Sets the adapter's content, unless it was refused already."""
        with self._lock:
            if adapter.content != self.UNKNOWN:
                adapter.content = content
            content, waiting = adapter.content, adapter.take_waiting()
        self._settle(content, waiting)

    def _settle(self, content, waiting):
        settled = sum(one.settle(content) for one in waiting)
        if content == self.UNKNOWN:
            with self._lock:
                self.unknown += settled

    def _warn(self, adapter, why):
        """Logs the reason, once for each adapter, before any call for it returns."""
        with self._warning:
            if not adapter.warned:
                adapter.warned = True
                self._logger.warning("kvkeep: nothing is kept for the adapter %r: %s",
                                     adapter.named[0], why)


class Content(concurrent.futures.Future):
    """The id of the content of a request's adapter. It is UNKNOWN if the id comes too late, and
    once the content may be another."""

    def __init__(self, adapter, users, clock, deadline, gave_up):
        super().__init__()
        self._adapter, self._users, self._gave_up = adapter, users, gave_up
        self._clock, self._deadline = clock, deadline

    def done(self):
        """Returns whether the id is known or its time is over."""
        if not super().done() and self._clock() >= self._deadline:
            if self.settle(Adapters.UNKNOWN):
                self._gave_up(self._adapter)
        return super().done()

    def result(self, timeout=None):
        """Returns the id, or UNKNOWN. Raises TimeoutError if within `timeout` it is not known and
        its time is not over."""
        if not self.done():
            left = max(0.0, self._deadline - self._clock())
            try:
                super().result(left if timeout is None else min(left, timeout))
            except concurrent.futures.TimeoutError:
                if not self.done():
                    raise
        content = super().result()
        if self._adapter.removed or any(one.content != content for one in self._users):
            return Adapters.UNKNOWN
        return content

    def settle(self, content):
        """Settles the id. Returns False if it was settled before."""
        try:
            self.set_result(content)
        except concurrent.futures.InvalidStateError:
            return False
        return True


class _Adapter:
    """The adapter that an engine has under a number."""

    def __init__(self, named, content=None):
        self.named = named
        self.signature = None  # of its files, as they were before the engine read them
        self.content = content  # None: not known yet; UNKNOWN: for good
        self.used = self.reading = self.removed = self.warned = False
        self.waiting, self.asked = [], None  # Contents, and the time since when they wait

    def take_waiting(self):
        """Returns the Contents that wait. REQUIRES: the lock, and an answer for them."""
        taken, self.waiting, self.asked = self.waiting, [], None
        return taken


def _named(lora_request):
    """Returns everything that determines how an engine loads an adapter, and whether it reads the
    experts' weights as 3D."""
    return (lora_request.lora_name, lora_request.lora_path,
            getattr(lora_request, "is_3d_lora_weight", False))
