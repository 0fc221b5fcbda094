"""Users who talk with a model in turns: what they ask, with neither an engine nor a clock.

As in LMBenchmark's multi-round question answering: all users share a system prompt, each has a
history of its own, and each round adds a question and the answer that was heard. The same Load
asks the same of everybody.
"""

import dataclasses
import random

RESERVED = 3  # tokens that a vocabulary begins with and nobody says


@dataclasses.dataclass(frozen=True)
class Load:
    users: int = 4
    rounds: int = 5
    system_tokens: int = 512
    history_tokens: int = 2048
    question_tokens: int = 64
    answer_tokens: int = 32
    vocabulary: int = 32000
    seed: int = 0

    def __post_init__(self):
        for name, least in (("users", 1), ("rounds", 2), ("system_tokens", 0), ("seed", 0),
                            ("history_tokens", 0), ("question_tokens", 1), ("answer_tokens", 2),
                            ("vocabulary", RESERVED + 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: at least {least}, not {getattr(self, name)}")

    def longest_tokens(self):
        """Tokens of the longest conversation, its last answer included."""
        return (self.system_tokens + self.history_tokens
                + self.rounds * (self.question_tokens + self.answer_tokens))

    def talks(self):
        """A Talk for each user."""
        return [Talk(self, user) for user in range(self.users)]

    def say(self, tokens, *who):
        """So many tokens; the same ones each time for the same `who`."""
        generator = random.Random(f"{self.seed} {who}")
        return [generator.randrange(RESERVED, self.vocabulary) for _ in range(tokens)]


class Talk:
    """One user's conversation: ask, hear, ask, ..."""

    def __init__(self, load, user):
        self._load, self._user, self._round = load, user, 0
        self._said = (load.say(load.system_tokens, "system")
                      + load.say(load.history_tokens, "history", user))
        self._asked = False

    def ask(self):
        """The whole prompt of the next round."""
        assert not self._asked, "asked twice"
        self._asked = True
        self._said += self._load.say(self._load.question_tokens, "question", self._user,
                                     self._round)
        self._round += 1
        return list(self._said)

    def hear(self, answer):
        assert self._asked, "nothing was asked"
        self._asked = False
        self._said += answer
