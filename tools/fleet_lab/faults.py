"""Scripts of faults: what happens when. A line is SECONDS VERB WORDS; # begins a comment.

    5    kill b             SIGKILL             20%  slow a b delay=20ms rate=4MiB loss=0.02
    8    restart b          on its own files    30%  slow g4 delay=200ms
    9    lose b             kill it, and delete 40%  partition a        from all others and from G4
    9.5  restart b          its files           45%  partition a b      these two from each other
    10   stop c             SIGSTOP             50%  half-open a b      what a sends to b is lost
    12   continue c         SIGCONT             60%  reset a            ends its connections by RST
    15   partition g4       cuts the bucket     70%  heal [a [b]]       ends all this, but for kills

A time may be a share of the run. slow, partition, half-open, reset and heal take two ends of links,
or one for all links of that end; `g4` is an end. heal without an end heals all links. loss is the
share of blocks of 64 KiB that wait 200 ms, as a lost packet's successors do.
"""

import dataclasses

from figures import byte_size

VERBS = {"kill": (1, 1), "lose": (1, 1), "restart": (1, 1), "stop": (1, 1), "continue": (1, 1),
         "partition": (1, 2), "half-open": (2, 2), "slow": (1, 2), "reset": (1, 2), "heal": (0, 2)}
OF_DAEMONS = ("kill", "lose", "restart", "stop", "continue")
BUCKET = "g4"

DEMO = """
6%   slow a b delay=1ms rate=20MiB loss=0.01
14%  heal a b
18%  kill b
24%  restart b
30%  stop c
36%  continue c
42%  partition a
50%  heal a
54%  lose c
58%  restart c
62%  partition b c
68%  heal b c
72%  partition g4
80%  heal g4
84%  reset a
88%  half-open b a
94%  heal
"""


@dataclasses.dataclass(frozen=True)
class Fault:
    at_s: float
    verb: str
    ends: tuple
    settings: dict

    def __str__(self):
        return " ".join([self.verb, *self.ends,
                         *(f"{name}={value}" for name, value in self.settings.items())])


def _time(word, seconds):
    return float(word[:-1]) / 100 * seconds if word.endswith("%") else float(word)


def link_settings(words):
    """Returns {"delay_s", "bytes_per_s", "loss"} of {"delay": "20ms", "rate": "4MiB", ...}."""
    out = {}
    for name, value in words.items():
        if name == "delay" and value.endswith("ms"):
            out["delay_s"] = float(value[:-2]) / 1000
        elif name == "rate":
            out["bytes_per_s"] = byte_size(value)
        elif name == "loss" and 0 <= float(value) <= 1:
            out["loss"] = float(value)
        else:
            raise ValueError(f"'{name}={value}' is none of delay=20ms, rate=4MiB and loss=0.02")
    return out


def _fault(words, nodes, seconds):
    at_s, verb, rest = _time(words[0], seconds), words[1], words[2:]
    if verb not in VERBS:
        raise ValueError(f"'{verb}' is none of {', '.join(VERBS)}")
    ends = tuple(word for word in rest if "=" not in word)
    settings = dict(word.split("=", 1) for word in rest if "=" in word)
    least, most = VERBS[verb]
    if not least <= len(ends) <= most or len(set(ends)) != len(ends):
        raise ValueError(f"{verb} takes {least} to {most} ends")
    known = nodes if verb in OF_DAEMONS else (*nodes, BUCKET)
    for end in ends:
        if end not in known:
            raise ValueError(f"'{end}' is none of {', '.join(known)}")
    if (verb == "slow") != bool(settings):
        raise ValueError("slow, and nothing else, takes delay=, rate= and loss=")
    link_settings(settings)
    if not 0 <= at_s:
        raise ValueError("a time is at least 0")
    return Fault(at_s, verb, ends, settings)


def parse(text, nodes, seconds):
    """Returns the faults in their order. ValueError names the line."""
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            faults.append(_fault(words, nodes, seconds))
        except (ValueError, IndexError) as error:
            raise ValueError(f"faults, line {number}: {error}") from error
    return sorted(faults, key=lambda fault: fault.at_s)
