"""Users who talk at a pace, whoever answers; with neither an engine nor HTTP.

As in LMBenchmark: user N begins N / qps seconds after the first, and asks again users / qps seconds
after that, or as soon as the answer is there, if that is later.
"""

import asyncio
import time


class Users:
    """heard: {(user, round): the answer}. A user hears the answer in it, whatever the engine said:
    so all engines that run with one `heard` are asked the same."""

    def __init__(self, load, qps, heard):
        if qps <= 0:
            raise ValueError(f"qps: above 0, not {qps}")
        self._load, self._qps, self._heard = load, qps, heard
        self._talks = load.talks()
        self.prompts, self.said = [], []  # in the order of the answers

    async def play(self, rounds, ask, qps=None):
        """Each user's next `rounds`, a range. ask(prompt, answer_tokens): a coroutine, of what an
        engine said. qps: another pace for these. Returns how many seconds it took."""
        begin = time.monotonic()
        await asyncio.gather(*(self._play_one(user, rounds, begin, qps or self._qps, ask)
                               for user in range(self._load.users)))
        return time.monotonic() - begin

    async def _play_one(self, user, rounds, begin, qps, ask):
        talk = self._talks[user]
        for turn, number in enumerate(rounds):
            at = begin + (user + turn * self._load.users) / qps
            await asyncio.sleep(max(at - time.monotonic(), 0))
            prompt = talk.ask()
            said = await ask(prompt, self._load.answer_tokens)
            self.prompts.append(prompt)
            self.said.append(said)
            talk.hear(self._heard.setdefault((user, number), said["tokens"]))
