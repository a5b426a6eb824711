"""The random source of the conversation generator: choices, the held-out split, surface
noise, and the names and places that several skills share.

Everything is drawn from one seeded `random.Random`, so the order of the calls is part of
the data: a call added, moved or removed changes every conversation that follows.

Held-out split: every generator of a skill describes what it is about to produce with a
key (the combination of facts and slots that makes the row unique, independent of
capitalisation and punctuation noise). A stable hash puts 1 key in HELD_OUT in the eval
split; the training generator redraws until the key is a training key and the eval
generator until it is an eval key, so the two never share a key.
"""
import random
import zlib

from lexicon import CITIES, COUNTRIES, NAMES

HELD_OUT = 12
OPEN = ("open",)            # the key of what has too few variants to hold any out: train on all

SYLLABLES = ["ba", "ko", "ri", "lu", "ma", "ne", "so", "ta", "vi", "za", "mo", "re", "li", "do",
             "ka", "fe", "na", "ro", "sha", "len", "dor", "mir", "tan", "vel", "kin"]


def cap_first(text):
    return text[:1].upper() + text[1:]


def a_or_an(noun):
    return "an" if noun[0] in "aeiou" else "a"


class Draw:
    def __init__(self, seed, split="train"):
        self.rng = random.Random(seed)
        self.is_eval = split == "eval"

    def pick(self, choices):
        return self.rng.choice(choices)

    def chance(self, probability):
        return self.rng.random() < probability

    def in_split(self, key):
        """True when this key belongs to the split being generated."""
        if key == OPEN:
            return not self.is_eval
        held_out = zlib.crc32(("|".join(map(str, key)) + "#v1").encode()) % HELD_OUT == 0
        return held_out == self.is_eval

    def redraw(self, attempt):
        """Call attempt() -> (key, value) until the key is in our split; return the value."""
        while True:
            key, value = attempt()
            if self.in_split(key):
                return value

    def style(self, prompt, lower=0.12, polite=True):
        """Surface noise on a user prompt that never changes its answer."""
        if polite and self.chance(0.05):
            prompt = self.pick(["Please tell me: ", "Quick question: ", "Hi! ", "Hello, ", "Hey, ",
                                "Question: ", "Hi, "]) + prompt
        if polite and self.chance(0.04) and prompt[-1:] in "?.":
            prompt = prompt[:-1] + self.pick([", please", " please", ", thanks"]) + prompt[-1]
        if self.chance(0.14) and prompt[-1:] in "?.!":
            prompt = prompt[:-1]
        elif self.chance(0.03):
            prompt = prompt + self.pick(["?", "!", " ", "."])
        if self.chance(lower):
            prompt = prompt.lower()
        elif self.chance(0.015):
            prompt = prompt.upper()
        return prompt

    def invented(self, low, high):
        """A made-up word of low to high syllables."""
        return "".join(self.pick(SYLLABLES) for _ in range(self.rng.randint(low, high)))

    def name(self):
        """A known name, or (sometimes) an invented one so that copying generalises."""
        if self.chance(0.8):
            return self.pick(NAMES)
        return self.invented(2, 3).capitalize()

    def city(self):
        if self.chance(0.85):
            return self.pick(CITIES)
        return self.pick(COUNTRIES)[1]
