"""The engine: a thread that computes step after step while there is something to do.

Loads from a store and saves to it run in threads of their own and report to the engine's thread,
which alone touches the scheduler and the model.
"""

import concurrent.futures
import queue
import threading
import time

from gpu_serve.scheduler import Scheduler, Sequence

LOADERS, SAVERS = 2, 1


class Engine:
    """store: None, or as gpu_serve.store.Store."""

    def __init__(self, pool, limits, runner, store=None):
        self._limits, self._runner, self._store = limits, runner, store
        self._scheduler = Scheduler(pool, limits, self if store is not None else None)
        self._inbox = queue.SimpleQueue()  # functions for the engine's thread; None ends it
        self._loads = concurrent.futures.ThreadPoolExecutor(LOADERS, "load")
        self._saves = concurrent.futures.ThreadPoolExecutor(SAVERS, "save")
        self._unsaved = 0  # calls that the savers have not ended
        self._asked = set()  # futures
        self.steps = 0
        self.failure = None
        self._thread = threading.Thread(target=self._run, name="engine")
        self._thread.start()

    def ask(self, prompt, answer_tokens):
        """A future of what tools/engine-bench keeps of a request, with the gap of each token."""
        asked, began = concurrent.futures.Future(), time.monotonic()

        def end(one):
            self._asked.discard(asked)
            asked.set_result({
                "ttft_s": one.at[0] - began, "tokens": one.answer, "gaps": one.gaps,
                "cached": one.cached, "recalled": one.recalled,
                "itl_s": [late - soon for soon, late in zip(one.at, one.at[1:])]})

        sequence = Sequence(prompt, answer_tokens, began, end, self._limits.block_tokens)
        self._asked.add(asked)
        self._inbox.put(lambda: self._scheduler.add(sequence))
        if self.failure is not None:
            self._fail(self.failure)
        return asked

    @property
    def prefilled(self):
        return self._scheduler.prefilled

    def settle(self, timeout_s=120):
        """Waits until all that is to be saved has been."""
        deadline = time.monotonic() + timeout_s
        while True:
            told = concurrent.futures.Future()
            self._inbox.put(lambda at=told: at.set_result(
                self._unsaved == 0 and self._scheduler.idle))
            if told.result(timeout=timeout_s):
                return
            if self.failure is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the engine is not done: {self.failure or 'it still saves'}")
            time.sleep(0.01)  # a saver ends a call of some ms, and tells only the engine's thread

    def stop(self):
        self._inbox.put(None)
        self._thread.join()
        self._loads.shutdown()
        self._saves.shutdown()

    # ---- what the scheduler begins; on the engine's thread

    def load(self, sequence, keys, blocks):
        self._later(self._loads, lambda: self._store.recall(keys, blocks),
                    lambda chunks: self._scheduler.loaded(sequence, chunks))

    def save(self, keys, blocks):
        def saved(_):
            self._unsaved -= 1
            self._scheduler.saved([block for each in blocks for block in each])

        self._unsaved += 1
        self._later(self._saves, lambda: self._store.put(keys, blocks), saved)

    def _later(self, pool, work, then):
        """Has `work` done in that pool, then calls then(its answer) on the engine's thread."""
        def report(done):
            def tell():
                then(done.result())

            self._inbox.put(tell)

        pool.submit(work).add_done_callback(report)

    # ---- the thread

    def _run(self):
        try:
            while self._take():
                self._scheduler.admit()
                pieces = self._scheduler.compose()
                if pieces:
                    said = self._runner.run(pieces)
                    self._scheduler.advance(pieces, said, time.monotonic())
                    self.steps += 1
                self._working = bool(pieces)
        except Exception as error:  # whatever torch or the client raise: those who wait must know
            self._fail(error)
            raise

    _working = False

    def _take(self):
        """Does what was asked for since the last step; waits for it if there is nothing else to do.
        False: the engine ends."""
        while True:
            try:
                asked = self._inbox.get(block=not self._working)
            except queue.Empty:
                return True
            if asked is None:
                return False
            asked()
            self._working = True  # look at the rest of the inbox, and begin

    def _fail(self, error):
        self.failure = error
        for asked in list(self._asked):
            if not asked.done():
                asked.set_exception(RuntimeError(f"the engine failed: {error!r}"))
