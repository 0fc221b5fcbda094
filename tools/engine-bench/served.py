"""vLLM servers with OpenAI's API, each a process, and a router that takes turns between them."""

import asyncio
import contextlib
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

import engine_process
import vllm_engine
from daemon import free_port

STARTS_WITHIN_S, ENDS_WITHIN_S, ANSWERS_WITHIN_S = 300, 60, 600
WARM_UP_TOKENS = 64
QUIET_S = 2  # between the last answer and the end of an engine: nothing tells what is still stored


class ServedEngines:
    """As many as wanted, on one machine. arguments: more of vllm_engine.serve_arguments."""

    def __init__(self, count, script, asked, model, endpoint, path, connector, arguments):
        self._count, self._script, self._model = count, script, model
        self._connector, self._arguments = connector, arguments
        # Engines in a process of their own, which inherits what this script does.
        self._environment = engine_process.environment_of(asked, {
            **vllm_engine.ENVIRONMENT, "VLLM_WORKER_MULTIPROCESSING_METHOD": "fork"},
            endpoint, path)
        self._running = []  # (process, url, log)
        self.start()

    def start(self):
        for _ in range(self._count):
            port, log = free_port(), tempfile.TemporaryFile("w+")
            process = subprocess.Popen(
                [sys.executable, "-B", self._script, *vllm_engine.serve_arguments(
                    self._model, port, self._connector, **self._arguments)],
                env=self._environment, stdout=log, stderr=subprocess.STDOUT)
            self._running.append((process, f"http://127.0.0.1:{port}", log))
        for process, url, log in self._running:
            deadline = time.monotonic() + STARTS_WITHIN_S
            while not _is_healthy(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = log.read()[-3000:]
                    self.stop()
                    raise AssertionError("the engine did not start: " + said)
                time.sleep(0.2)

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        if self._running:
            time.sleep(QUIET_S)
        left = offloaded(self.pids)
        for process, _, _ in self._running:
            process.terminate()
        for process, _, log in self._running:
            try:
                process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()
        self._running = []
        remove(left)

    @property
    def pids(self):
        return [process.pid for process, _, _ in self._running]

    @property
    def urls(self):
        return [url for _, url, _ in self._running]

    def play(self, users, rounds):
        """Their rounds by turns; how many seconds they took. Each engine was asked once before."""
        return asyncio.run(self._play(users, rounds))

    async def _play(self, users, rounds):
        import aiohttp

        limits = aiohttp.ClientTimeout(total=ANSWERS_WITHIN_S)
        async with aiohttp.ClientSession(timeout=limits) as http:
            urls = self.urls
            for at, url in enumerate(urls):
                await ask(http, url, [at + 5] * WARM_UP_TOKENS, 2)
            turns = itertools.cycle(urls)
            return await users.play(
                rounds, lambda prompt, tokens: ask(http, next(turns), prompt, tokens))


async def ask(http, url, prompt, answer_tokens):
    """The figures of a request as measured_engine.py gives them, as it came over HTTP."""
    begin, at, tokens, cached = time.monotonic(), [], [], 0
    async with http.post(f"{url}/v1/completions", json={
            "model": "m", "prompt": prompt, "max_tokens": answer_tokens, "temperature": 0,
            "ignore_eos": True, "stream": True, "return_token_ids": True,
            "stream_options": {"include_usage": True}}) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            said, now = json.loads(line[len(b"data: "):]), time.monotonic()
            for choice in said["choices"]:
                came = choice.get("token_ids") or []
                tokens += came
                at += [now - begin] * len(came)
            if usage := said.get("usage"):
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if len(tokens) != answer_tokens:
        raise AssertionError(f"{len(tokens)} tokens came of {answer_tokens}")
    return {"ttft_s": at[0], "tokens": tokens, "cached": cached,
            "itl_s": [late - soon for soon, late in zip(at, at[1:])]}


def offloaded(pids):
    """Files of vLLM's CPU memory that these processes and their children map: it leaves them where
    it ends by a signal."""
    import psutil

    found = set()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            one = psutil.Process(pid)
            for process in (one, *one.children(recursive=True)):
                found.update(pathlib.Path(mapped.path) for mapped in process.memory_maps()
                             if mapped.path.startswith("/dev/shm/vllm_offload_"))
    return found


def remove(files):
    for path in files:
        path.unlink(missing_ok=True)


def host_bytes(pids):
    """Memory of these processes and their children; bytes that several share count once."""
    import psutil

    total = 0
    for pid in pids:
        one = psutil.Process(pid)
        for process in (one, *one.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().pss
    return total


def _is_healthy(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
