"""A vLLM engine in a process of its own that says when each token came. Run by arms.py only.

A line is JSON: {"ask": [prompt, ...], "answer_tokens": N}: all at once; or {"restart": true}:
another engine in the same process, which knows nothing of the first.
"""

import gc
import json
import time

import engine_process
import vllm_engine

WARM_UP_TOKENS = 64


def hide_llvmlite():
    """LMCache brings it. vLLM asks every object of every module for its __dict__, and llvmlite's
    library answers with a function of that name."""
    from llvmlite.binding import ffi

    ffi.lib._fntab["__dict__"] = {}


class Engine:
    def __init__(self, model, options):
        self._model, self._options, self._asked, self._llm = model, options, 0, None
        if (options["connector"] or {}).get("kv_connector") == "LMCacheMPConnector":
            hide_llvmlite()
        self.restart()

    def stop(self):
        """Waits for what is still stored."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None
            gc.collect()

    def restart(self):
        self.stop()
        self._llm = vllm_engine.make(self._model, self._options["connector"],
                                     **self._options["llm"])
        self.warm_up()

    def warm_up(self):
        """A short prompt that nobody asks for; vLLM's offloading stores in its step what was
        computed in the one before."""
        self.ask([[self._asked % 900 + 5] * WARM_UP_TOKENS], 2)

    def ask(self, prompts, answer_tokens):
        engine, params = self._llm.llm_engine, vllm_engine.sampling(answer_tokens)
        heard, begin = {}, time.monotonic()
        for tokens in prompts:
            self._asked += 1
            name = str(self._asked)
            heard[name] = {"at": [], "tokens": [], "cached": 0}
            engine.add_request(name, {"prompt_token_ids": tokens}, params)
        waiting = set(heard)
        while waiting:
            outs, now = engine.step(), time.monotonic()
            for out in outs:
                one = heard[out.request_id]
                one["tokens"] = list(out.outputs[0].token_ids)
                one["at"] += [now - begin] * (len(one["tokens"]) - len(one["at"]))
                one["cached"] = out.num_cached_tokens or 0
                if out.finished:
                    waiting.discard(out.request_id)
        seconds = time.monotonic() - begin
        return {"seconds": seconds, "requests": [
            {"ttft_s": one["at"][0], "tokens": one["tokens"], "cached": one["cached"],
             "itl_s": [late - soon for soon, late in zip(one["at"], one["at"][1:])]}
            for one in heard.values()]}


def main():
    asked = engine_process.arguments(__doc__)
    engine = Engine(asked.engine, engine_process.options())

    def answer(line):
        wanted = json.loads(line)
        if wanted.get("restart"):
            engine.restart()
            return {"restarted": True}
        said = engine.ask(wanted["ask"], wanted["answer_tokens"])
        engine.warm_up()
        return said

    engine_process.serve(answer)
    engine.stop()


if __name__ == "__main__":
    main()
