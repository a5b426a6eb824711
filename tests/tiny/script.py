"""A model that follows a script: what it says next is decided by the last three tokens and
by one thing it remembers. So the control tokens of a format, which come again and again,
can stand in it: a whole tool call, byte for byte, with no training.

build(case) gives the trunk for container.write(). The case, beside what every case has:
  paths     [(flag, [text, ...]), ...]: each token of a path after its third follows the
            three before it; flag 1: only when the memory is set, 0: only when it is not,
            None: always
  sets      token text that sets the memory; clears: one that clears it
  otherwise token text after anything that no path has

How it works, in the terms of docs/model.md. Tokens of the script have a number each, all
others share number 0. Dimensions of the residual stream, n numbers each: the token itself,
the one before, the one before that, the next one; then the memory, and a constant 1.
Layer 0 is KDA. Head 0 forgets at once, so its output is the convolved value of this very
step: the numbers of the two tokens before. Head 1 never forgets, and writes only when its
beta says so. The layer's feed-forward has a neuron for each line of the script, which is
on when all it asks for is there, and writes the next token's number. Layer 1 is an MLA
layer that adds nothing: the model has latents to keep as well.
"""
import math

from tiny import container

TAPS = 4


def lines(case):
    """{(before, before, last, flag): next}; a contradiction is an error."""
    out = {}
    for flag, path in case["paths"]:
        for i in range(3, len(path)):
            key = tuple(path[i - 3:i]) + (flag,)
            if out.setdefault(key, path[i]) != path[i]:
                raise ValueError(f"{key}: {out[key]!r} or {path[i]!r}")
    for key, after in out.items():
        if key[3] is not None and out.get(key[:3] + (None,), after) != after:
            raise ValueError(f"{key}: with the memory and without")
    return out


def texts(case):
    """All of the script."""
    seen = [t for _, path in case["paths"] for t in path] + [case["sets"], case["clears"], case["otherwise"]]
    return list(dict.fromkeys(seen))


def config(case):
    n, told = len(texts(case)) + 1, lines(case)
    dim = 2 * n + -2 * n % 16
    return {"model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"],
            "hidden_size": 4 * n + 2, "num_hidden_layers": 2, "first_k_dense_replace": 2, "num_experts": 0,
            "num_experts_per_token": 0, "intermediate_size": len(told), "num_attention_heads": 1,
            "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 16, "q_lora_rank": None,
            "mla_use_nope": True, "rms_norm_eps": 1e-5, "hidden_act": "silu",
            "linear_attn_config": {"head_dim": dim, "num_heads": 2, "short_conv_kernel_size": TAPS, "kda_layers": [1],
                                   "full_attn_layers": [2]}}


def build(case):
    c, t = case["config"], container.Trunk(case)
    p, hidden, vocab, dim = case.get("prefix", ""), c["hidden_size"], c["vocab_size"], c["linear_attn_config"]["head_dim"]
    script, told = texts(case), lines(case)
    number = {text: i + 1 for i, text in enumerate(script)}
    ids = {b: i for i, b in enumerate(case["tokens"])}
    ids.update({s.encode(): len(case["tokens"]) + i for i, s in enumerate(case["specials"])})
    n = len(script) + 1
    last, before, next_, memory, one = 0, n, 3 * n, 4 * n, 4 * n + 1
    ch = 2 * dim

    def add(name, rows, cols, *entries):
        values = [0.0] * (rows * cols)
        for r, k, v in entries:
            values[r * cols + k] = v
        t.add(p + name, [rows, cols] if cols > 1 or name.endswith("_proj.weight") else [rows], values)

    def vector(name, size, value=1.0):
        t.add(p + name, [size], [value] * size)

    token = {ids[text.encode()]: k for text, k in number.items()}
    add("model.embed_tokens.weight", vocab, hidden,
        *[(i, last + token.get(i, 0), 1.0) for i in range(vocab)], *[(i, one, 1.0) for i in range(vocab)])
    for l in (0, 1):
        vector(f"model.layers.{l}.input_layernorm.weight", hidden)
        vector(f"model.layers.{l}.post_attention_layernorm.weight", hidden)

    # -- layer 0: two tokens before the last, and the memory
    a = "model.layers.0.self_attn."
    same = [(0, one, 1.0), (dim, one, 1.0)]  # one key for all
    add(a + "q_proj.weight", ch, hidden, *same)
    add(a + "k_proj.weight", ch, hidden, *same)
    add(a + "v_proj.weight", ch, hidden, *[(i, last + i % n, 1.0) for i in range(2 * n)],
        (dim, last + number[case["sets"]], 1.0))
    now = [(i, TAPS - 1, 1.0) for i in range(ch)]
    add(a + "q_conv1d.weight", ch, TAPS, *now)
    add(a + "k_conv1d.weight", ch, TAPS, *now)
    add(a + "v_conv1d.weight", ch, TAPS, *[(i, TAPS - 2 - i // n, 1.0) for i in range(2 * n)], (dim, TAPS - 1, 1.0))
    add(a + "f_a_proj.weight", dim, hidden)
    add(a + "f_b_proj.weight", ch, dim)
    add(a + "b_proj.weight", 2, hidden, (0, one, 20.0), (1, one, -20.0),
        *[(1, last + number[case[x]], 40.0) for x in ("sets", "clears")])
    t.add(p + a + "A_log", [2], [0.0, 0.0])
    t.add(p + a + "dt_bias", [ch], [30.0] * dim + [-30.0] * dim)
    add(a + "g_a_proj.weight", dim, hidden)
    add(a + "g_b_proj.weight", ch, dim)
    vector(a + "o_norm.weight", dim)
    # a norm makes of k equal values sqrt(dim / k) each, the gate is one half
    add(a + "o_proj.weight", hidden, ch, *[(before + i, i, 2 / math.sqrt(dim / 2)) for i in range(2 * n)],
        (memory, dim, 2 / math.sqrt(dim)))
    f = "model.layers.0.mlp."
    gate, down = [], []
    for i, ((x, y, z, flag), after) in enumerate(told.items()):
        gate += [(i, last + number[z], 10.0), (i, before + number[y], 10.0), (i, before + n + number[x], 10.0),
                 (i, memory, {1: 10.0, 0: -10.0, None: 0.0}[flag]), (i, one, -27.0 - 10.0 * (flag == 1))]
        down.append((next_ + number[after], i, 1.0))
    add(f + "gate_proj.weight", len(told), hidden, *gate)
    add(f + "up_proj.weight", len(told), hidden, *[(i, one, 1.0) for i in range(len(told))])
    add(f + "down_proj.weight", hidden, len(told), *down)

    # -- layer 1: nothing
    a, f = "model.layers.1.self_attn.", "model.layers.1.mlp."
    add(a + "q_proj.weight", 16, hidden)
    add(a + "kv_a_proj_with_mqa.weight", 24, hidden)
    vector(a + "kv_a_layernorm.weight", 16)
    add(a + "kv_b_proj.weight", 16, 16)
    add(a + "o_proj.weight", hidden, 8)
    add(f + "gate_proj.weight", len(told), hidden)
    add(f + "up_proj.weight", len(told), hidden)
    add(f + "down_proj.weight", hidden, len(told))

    vector("model.norm.weight", hidden)
    add("lm_head.weight", vocab, hidden, (ids[case["otherwise"].encode()], one, 1.0),
        *[(i, next_ + k, 2.0) for i, k in token.items()])
    return t
