"""Conversations as tokens: K3's XTML layout, and the loss mask of a sample.

A conversation is first rendered to segments (kind, text, loss). A "control" segment is
one special token, a "text" segment is ordinary text; each is tokenised on its own, so
content can never spell a control token. `loss` marks what the model must produce.
"""

# What a prompt ends with, so that the model continues with the answer's text.
GENERATION_PROMPT = [("control", "<|open|>", True), ("text", 'message role="assistant"', True),
                     ("control", "<|sep|>", True), ("control", "<|open|>", True), ("text", "response", True),
                     ("control", "<|sep|>", True)]


def render(messages):
    """The segments of a list of {"role", "content"}; assistant messages carry the loss."""
    segments = []
    for message in messages:
        answer = message["role"] == "assistant"
        tag = f'message role="{message["role"]}"'
        parts = [("control", "<|open|>"), ("text", tag), ("control", "<|sep|>")]
        if answer:
            parts += [("control", "<|open|>"), ("text", "response"), ("control", "<|sep|>")]
        parts.append(("text", message["content"]))
        if answer:
            parts += [("control", "<|close|>"), ("text", "response"), ("control", "<|sep|>")]
        parts += [("control", "<|close|>"), ("text", "message"), ("control", "<|sep|>"),
                  ("control", "<|end_of_msg|>")]
        segments += [(kind, text, answer) for kind, text in parts]
    return segments


def encode_segments(tok, segments):
    """(token ids, 0/1 loss mask)."""
    ids, mask = [], []
    for kind, text, loss in segments:
        piece = [tok.special[text]] if kind == "control" else tok.encode(text)
        ids += piece
        mask += [int(loss)] * len(piece)
    return ids, mask


def encode_sample(tok, sample):
    """(token ids, 0/1 loss mask) of a sample of data.Generator; the mask is 1 on every token
    the model must produce."""
    if "parts" in sample:
        segments = [("text", text, loss) for text, loss in sample["parts"]]
        return encode_segments(tok, segments + [("control", "<|end_of_msg|>", 0)])
    if "text" in sample:
        ids = tok.encode(sample["text"]) + [tok.special["<|end_of_msg|>"]]
        return ids, [1] * len(ids)
    return encode_segments(tok, render(sample["messages"]))


def prompt_ids(tok, messages):
    """The token ids after which the model gives its answer to `messages`."""
    return encode_segments(tok, render(messages) + GENERATION_PROMPT)[0]
