"""Byte-level BPE: trainer, encoder, and the tiktoken rank file.

Text is first cut into pre-tokens with Kimi's pattern, re-stated here as a small
hand-written matcher over Unicode categories (the `regex` module is not needed).
Merges are learned inside pre-tokens only, and no merge may contain a digit, so a
number is always one token per digit - which is what makes small sums learnable.

  python3 bpe.py NEW.model            learn a vocabulary from generated conversations

The released weights are tied to ../checkpoint/tiktoken.model, whose vocabulary was learned
from an earlier state of the generator: a new one needs a new training run.
"""
import argparse
import base64
import collections
import os
import sys
import time
import unicodedata

SPECIALS = ["[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>",
            "<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>",
            "<|kimi_image_placeholder|>"]
N_SPECIAL = 16                                   # the rest are reserved slots
CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
DIGITS = set(b"0123456789")


# -------------------------------------------------------------- pre-tokens ---

def _is_han(c):
    o = ord(c)
    return (0x4E00 <= o <= 0x9FFF or 0x3400 <= o <= 0x4DBF or 0xF900 <= o <= 0xFAFF
            or 0x20000 <= o <= 0x2FA1F)


_classes = {}


def _class_of(c):
    """One letter per character: H han, U upper-ish, L lower, B both (Lm/Lo/M),
    N number, n newline, s other space, p everything else."""
    known = _classes.get(c)
    if known is not None:
        return known
    category = unicodedata.category(c)
    if _is_han(c):
        k = "H"
    elif category in ("Lu", "Lt"):
        k = "U"
    elif category == "Ll":
        k = "L"
    elif category in ("Lm", "Lo") or category[0] == "M":
        k = "B"
    elif category[0] == "N":
        k = "N"
    elif c in "\r\n":
        k = "n"
    elif c.isspace():
        k = "s"
    else:
        k = "p"
    _classes[c] = k
    return k


class _Matcher:
    """The alternatives of the pattern. Each takes a position and returns the end of its match
    there, or the position itself when it does not match."""

    def __init__(self, text):
        self.text, self.cls = text, [_class_of(c) for c in text]

    def run(self, i, kinds):
        """The end of the run of characters of these classes."""
        while i < len(self.cls) and self.cls[i] in kinds:
            i += 1
        return i

    def word(self, i):
        """Letters, upper* lower+ if possible, else upper+ lower*; then a contraction, if any."""
        upper = self.run(i, "UB")
        end = self.run(upper, "LB")
        if end == upper:                 # no lower-class letter follows: back off into the upper run
            k = upper
            while k > i and self.cls[k - 1] != "B":
                k -= 1
            end = max(upper, self.run(k, "LB") if k > i else upper)
        if end == i:
            return i
        tail = self.text[end:end + 3].lower()
        for s in CONTRACTIONS:
            if tail.startswith(s):
                return end + len(s)
        return end

    def prefixed_word(self, i):
        """A word, with one character before it that is no newline, number or letter."""
        if self.cls[i] in "ULB":
            return self.word(i)
        if self.cls[i] not in "nN" and i + 1 < len(self.cls) and self.cls[i + 1] in "ULB":
            return self.word(i + 1)
        return i

    def number(self, i):
        return min(self.run(i, "N"), i + 3)

    def punctuation(self, i):
        """Other characters after an optional space, with the newlines that follow."""
        begin = i + 1 if self.text[i] == " " else i
        end = self.run(begin, "p")
        return self.run(end, "n") if end > begin else i

    def space(self, i):
        """White space: up to its last newline; else all but the one before the next word."""
        end = self.run(i, "sn")
        for k in range(end - 1, i - 1, -1):
            if self.cls[k] == "n":
                return k + 1
        return end - 1 if end < len(self.cls) and end - i > 1 else end


def pretokens(text):
    """Split `text` the way the Kimi pattern does; the pieces concatenate back to it."""
    m, i, out = _Matcher(text), 0, []
    while i < len(text):
        end = m.run(i, "H")
        for alternative in (m.prefixed_word, m.number, m.punctuation, m.space):
            if end > i:
                break
            end = alternative(i)
        out.append(text[i:end])
        i = end
    return out


# ----------------------------------------------------------------- trainer ---

def _merge(parts, pair):
    """`parts` with every occurrence of the pair, left to right, made one part."""
    out, i = [], 0
    while i < len(parts):
        if tuple(parts[i:i + 2]) == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def _pairs(parts):
    """The neighbours that may be merged."""
    return [p for p in zip(parts, parts[1:]) if not DIGITS & set(p[0] + p[1])]


def train(texts, n_ranks):
    """Return the list of token byte strings; index = rank = id. Of equally frequent pairs the
    smallest is merged first; pairs that occur once are not merged."""
    counts = collections.Counter()
    for text in texts:
        counts.update(pretokens(text))
    words = [([bytes([b]) for b in word.encode()], count) for word, count in counts.items()]
    vocab = [bytes([b]) for b in range(256)]
    known = set(vocab)
    frequency, where = collections.Counter(), collections.defaultdict(set)
    for i, (parts, count) in enumerate(words):
        for p in _pairs(parts):
            frequency[p] += count
            where[p].add(i)
    while len(vocab) < n_ranks and frequency:
        best = min(frequency, key=lambda p: (-frequency[p], p))
        if frequency[best] < 2:
            break
        token = best[0] + best[1]
        if token not in known:           # another pair may have made the same bytes before
            vocab.append(token)
            known.add(token)
        for i in list(where[best]):
            parts, count = words[i]
            for p in _pairs(parts):
                frequency[p] -= count
                if frequency[p] <= 0:
                    del frequency[p]
            parts = _merge(parts, best)
            words[i] = (parts, count)
            for p in _pairs(parts):
                frequency[p] += count
                where[p].add(i)
    return vocab


# --------------------------------------------------------------- tokenizer ---

class Tokenizer:
    """Ranks (index = id) followed by N_SPECIAL special tokens."""

    def __init__(self, ranks):
        self.vocab = ranks
        self.rank = {token: i for i, token in enumerate(ranks)}
        reserved = [f"<|reserved_token_{len(ranks) + i}|>" for i in range(len(SPECIALS), N_SPECIAL)]
        self.special = {name: len(ranks) + i for i, name in enumerate(SPECIALS + reserved)}
        self.special_name = {i: name for name, i in self.special.items()}
        self.n_vocab = len(ranks) + N_SPECIAL
        self.cache = {}

    def _encode_piece(self, piece):
        """The ids of one pre-token: the lowest-ranked neighbours merge first."""
        ids = self.cache.get(piece)
        if ids is not None:
            return ids
        parts = [bytes([b]) for b in piece.encode()]
        while len(parts) > 1:
            best, at = None, -1
            for i in range(len(parts) - 1):
                rank = self.rank.get(parts[i] + parts[i + 1])
                if rank is not None and (best is None or rank < best):
                    best, at = rank, i
            if best is None:
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        ids = [self.rank[p] for p in parts]
        self.cache[piece] = ids
        return ids

    def encode(self, text):
        """Ordinary text only: markup spelled out in `text` stays ordinary bytes."""
        return [i for piece in pretokens(text) for i in self._encode_piece(piece)]

    def decode(self, ids):
        """Text of any ids; bytes that are no UTF-8 become U+FFFD."""
        tokens = [self.special_name[i].encode() if i in self.special_name else self.vocab[i] for i in ids]
        return b"".join(tokens).decode("utf-8", "replace")

    def save(self, path):
        """Write the tiktoken rank file: base64 of the bytes, a space, the rank."""
        with open(path, "wb") as f:
            for i, token in enumerate(self.vocab):
                f.write(base64.b64encode(token) + b" " + str(i).encode() + b"\n")

    @classmethod
    def load(cls, path):
        ranks = []
        with open(path, "rb") as f:
            for line in f:
                token, rank = line.split()
                assert int(rank) == len(ranks), f"{path}: rank {int(rank)} on line {len(ranks) + 1}"
                ranks.append(base64.b64decode(token))
        return cls(ranks)

    def added_tokens_decoder(self):
        """The special tokens as tokenizer_config.json lists them."""
        return {str(i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False,
                         "single_word": False, "special": True} for name, i in self.special.items()}


def main():
    """Learn a vocabulary from 40000 generated samples and show how it cuts a few texts."""
    from chat import encode_sample, render       # here only: using a vocabulary needs no generator
    from data import Generator

    parser = argparse.ArgumentParser(description="learn a vocabulary from generated conversations")
    parser.add_argument("path", help="the rank file to write; must not exist")
    path = parser.parse_args().path
    if os.path.exists(path):                     # trained weights depend on the ids of their file
        sys.exit(f"{path} exists; give another path")
    start, generator, texts = time.time(), Generator(11), []
    for _ in range(40000):
        sample = generator.sample()
        if "text" in sample:
            texts.append(sample["text"])
        elif "messages" in sample:
            texts += [text for kind, text, _ in render(sample["messages"]) if kind == "text"]
    tok = Tokenizer(train(texts, 2048 - N_SPECIAL))
    tok.save(path)
    print(len(tok.vocab), "ranks in", round(time.time() - start, 1), "s")
    print("longest:", sorted(tok.vocab[256:], key=len)[-12:])
    lengths = sorted(len(encode_sample(tok, generator.sample())[0]) for _ in range(4000))
    print("tokens per sample: mean", sum(lengths) / len(lengths), "p95", lengths[3800], "max", lengths[-1])
    for text in ("What is the capital of Italy?", '{"name":"Anna","city":"Paris"}', "12 + 7 = 19",
                 'message role="user"', "The capital of Burkina Faso is **Ouagadougou**.",
                 "SELECT * FROM users WHERE age > 30;"):
        ids = tok.encode(text)
        assert tok.decode(ids) == text
        print(len(ids), [tok.decode([i]) for i in ids])


if __name__ == "__main__":
    main()
