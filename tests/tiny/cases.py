"""The project's small containers: one for each thing a model or container can do.

    from tiny import cases
    path = cases.make("tiny-chat")      # build/tests/tiny/<version>/tiny-chat.waste
    ids = cases.sequences("tiny-chat")  # {"len1": [...], "len5": [...], "len70": [...]}

make() writes a container once and finds it again after that; any number of
tests may ask at the same time. <version> is a digest of this file, of
container.py and of script.py, so a change of any makes new ones. They are for reading:
a test that damages a container links or copies it first.

With text: tiny-chat (K3's XTML markers; it answers "Hello, world!" and ends),
tiny-plain (chat.json with the im_* markers; its words are random), tiny-text (a
tokenizer and no chat format) and tiny-tool (XTML; it thinks, calls a tool, and
answers when it has seen the result: script.py). No other case has a tokenizer.
tests/golden/logits/index.json has the greedy continuations of these.

    python3 tests/tiny/cases.py [NAME...]   writes all or some; prints sizes
"""
import copy
import hashlib
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from lib import tap  # noqa: E402
from tiny import container, script  # noqa: E402

# ---- the three families --------------------------------------------------

LINEAR = {
    "model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"],
    "hidden_size": 64, "num_hidden_layers": 4, "first_k_dense_replace": 1, "vocab_size": 96,
    "intermediate_size": 80, "moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_token": 3,
    "num_shared_experts": 1, "moe_renormalize": True, "routed_scaling_factor": 2.446,
    "num_attention_heads": 4, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "kv_lora_rank": 24, "q_lora_rank": None, "mla_use_nope": True, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "eos_token_id": 2,
    "linear_attn_config": {"head_dim": 16, "num_heads": 3, "short_conv_kernel_size": 4,
                           "kda_layers": [1, 2, 4], "full_attn_layers": [3]},
}
K3 = dict(copy.deepcopy(LINEAR), **{
    "_outer": {"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3"},
    "num_hidden_layers": 5, "num_experts": 10, "num_experts_per_token": 4, "num_shared_experts": 2,
    "routed_scaling_factor": 1.0, "routed_expert_hidden_size": 40, "latent_moe_use_norm": True,
    "attn_res_block_size": 2, "hidden_act": "situ", "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0, "q_lora_rank": 40, "mla_use_output_gate": True,
    "linear_attn_config": {"head_dim": 16, "num_heads": 3, "short_conv_kernel_size": 4,
                           "use_full_rank_gate": True, "gate_lower_bound": -5.0,
                           "kda_layers": [1, 2, 4], "full_attn_layers": [3, 5]},
})
V3_YARN = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
           "original_max_position_embeddings": 4096}
K2_YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0,
           "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
V3 = {
    "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 64, "num_hidden_layers": 3, "first_k_dense_replace": 1, "vocab_size": 96,
    "intermediate_size": 96, "moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_token": 3,
    "num_shared_experts": 1, "moe_renormalize": True, "routed_scaling_factor": 2.5,
    "num_attention_heads": 4, "qk_nope_head_dim": 12, "qk_rope_head_dim": 16, "v_head_dim": 16,
    "kv_lora_rank": 24, "q_lora_rank": 40, "mla_use_nope": False, "rms_norm_eps": 1e-6,
    "rope_theta": 10000, "rope_scaling": V3_YARN, "hidden_act": "silu", "eos_token_id": 1,
}
# Widths that are no multiple of 128, rows that are none of 64, odd head counts.
LINEAR_ODD = {"hidden_size": 136, "intermediate_size": 104, "moe_intermediate_size": 72, "num_experts": 6,
              "num_attention_heads": 3, "qk_nope_head_dim": 20, "qk_rope_head_dim": 12, "v_head_dim": 12,
              "kv_lora_rank": 36, "vocab_size": 101, "num_hidden_layers": 3,
              "linear_attn_config": {"head_dim": 20, "num_heads": 3, "short_conv_kernel_size": 4,
                                     "kda_layers": [1, 3]}}
K3_ODD = {"hidden_size": 88, "intermediate_size": 72, "moe_intermediate_size": 72, "num_experts": 7,
          "routed_expert_hidden_size": 136, "num_attention_heads": 3, "qk_nope_head_dim": 20,
          "qk_rope_head_dim": 4, "v_head_dim": 12, "kv_lora_rank": 36, "q_lora_rank": 52, "vocab_size": 101,
          "attn_res_block_size": 3, "num_hidden_layers": 4,
          "linear_attn_config": {"head_dim": 20, "num_heads": 3, "short_conv_kernel_size": 4,
                                 "use_full_rank_gate": True, "gate_lower_bound": -5.0, "kda_layers": [1, 2, 4]}}
V3_ODD = {"hidden_size": 72, "intermediate_size": 104, "moe_intermediate_size": 88, "num_experts": 7,
          "num_attention_heads": 5, "qk_nope_head_dim": 12, "qk_rope_head_dim": 20, "v_head_dim": 28,
          "kv_lora_rank": 44, "q_lora_rank": 0, "vocab_size": 101}

# Too wide for the forms of trunk and experts that fast kernels have for small models.
WIDE = {"hidden_size": 264, "moe_intermediate_size": 72, "num_experts": 7, "num_experts_per_token": 3,
        "num_hidden_layers": 3}

# ---- text ----------------------------------------------------------------

WORDS = ["Hello", " world", "message", "response", "think", "tools", "tool", "system", "user", "assistant", " role",
         "=\"", " the", " capital", " of", " France", " is", " a", " and", "one", " two", "ing", "er", "\n\n", "  ",
         "12", "123", "é", "世界", "你好", "🎉", "<|", "|>"]
XTML = ["[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|close|>", "<|sep|>", "<|media_begin|>",
        "<|media_content|>", "<|media_pad|>", "<|media_end|>"]
PLAIN = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"]
CHAT = {
    "system": ["<|im_system|>system<|im_middle|>", "<|im_end|>"],
    "user": ["<|im_user|>user<|im_middle|>", "<|im_end|>"],
    "assistant": ["<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"],
    "open": "<|im_assistant|>assistant<|im_middle|>",
}


def vocabulary():
    """All bytes, then each word with the beginnings that merging passes through."""
    tokens = [bytes([i]) for i in range(256)]
    for w in WORDS:
        b = w.encode()
        for n in range(2, len(b) + 1):
            if b[:n] not in tokens:
                tokens.append(b[:n])
    return tokens


def with_text(specials, config, tokens=None, **more):
    tokens = tokens or vocabulary()
    return dict(config=dict(config, vocab_size=len(tokens) + len(specials),
                            eos_token_id=len(tokens) + 2),
                tokens=tokens, specials=specials, **more)


def walk(tokens, specials):
    """After <|sep|>: Hello , world ! <|end_of_msg|>."""
    ids = {t: i for i, t in enumerate(tokens)}
    ids.update({s.encode(): len(tokens) + i for i, s in enumerate(specials)})
    path = [ids[x.encode()] for x in ("<|sep|>", "Hello", ",", " world", "!", "<|end_of_msg|>")]
    return dict(zip(path, path[1:]))


# ---- the list ------------------------------------------------------------

CASES = {}
SCRIPTED = {}  # they say what is told here, so that nobody need compute what is expected


def case(name, base, change=None, lin=None, drop=(), seed=1, **more):
    c = copy.deepcopy(base)
    c.update(copy.deepcopy(change or {}))
    if lin:
        c["linear_attn_config"].update(lin)
    for k in drop:
        del c[k]
    CASES[name] = dict(config=c, seed=f"{name}/{seed}", **more)


def text_case(name, specials, base, change=None, seed=1, **more):
    t = with_text(specials, copy.deepcopy(base), **more)
    t["config"].update(change or {})
    t["seed"] = f"{name}/{seed}"
    CASES[name] = t


# Seeds are chosen so that no choice of experts is closer than 3e-4 (oracle/logits.py --gaps).
#
# Kimi-Linear: KDA and MLA without positions. Then what a container may be stored as.
case("linear", LINEAR, omit=["index_bits"], seed=5)
case("linear-norenorm", LINEAR, drop=["moe_renormalize"], trunk="q3", extra=True, seed=5)
case("linear-top1", LINEAR, {"num_experts_per_token": 1}, bias=None, seed=2)
case("linear-topall", LINEAR, {"num_experts_per_token": 8, "first_k_dense_replace": 0},
     lin={"short_conv_kernel_size": 8}, trunk="q8")
case("linear-dense", LINEAR, {"num_experts": 0, "num_experts_per_token": 0})
case("linear-f32", LINEAR, trunk="f32", embed="f32", head="f32", seed=3)
case("linear-group32", LINEAR, group=32, embed="q4", seed=3)
case("linear-mixed", LINEAR, trunk="mixed", embed="q4", head="q4", scatter=True, conv3=True, book_gap=True, seed=2)
case("linear-2r", LINEAR, experts="vq2r")
case("linear-2r-fmt4", LINEAR, experts="vq2r", record_fmt=4, seed=2)
case("linear-4p", LINEAR, experts="vq4p", seed=4)
case("linear-stages4", LINEAR, experts=(4, 32, 8), seed=2)
case("linear-vecdim4", LINEAR, experts=(2, 16, 4))
case("linear-rowmajor", LINEAR, block=0, seed=3)
case("linear-rowmajor-4p", LINEAR, {"moe_intermediate_size": 72}, block=0, experts="vq4p")
case("linear-noblock", LINEAR, omit=["index_block", "index_bits"], block=0)
case("linear-small", LINEAR, trunk="q8", subnormal="trunk", seed=2)
case("linear-small-scales", LINEAR, subnormal="scales", seed=2)
case("linear-small-books", LINEAR, subnormal="books")
case("linear-odd", LINEAR, LINEAR_ODD, trunk="q3", scatter=True)
case("linear-kda", LINEAR, {"num_hidden_layers": 2}, lin={"kda_layers": [1, 2], "full_attn_layers": []})
case("linear-wide", LINEAR, WIDE, lin={"kda_layers": [1, 3], "full_attn_layers": [2]})

# K3: latent experts, attention over depth in blocks, SiTU, bounded decay, full-rank and output gates.
case("k3", K3, prefix="language_model.", a_log=8, extra=True)
case("k3-odd-4p", K3, K3_ODD, prefix="language_model.", experts="vq4p", a_log=4, scatter=True)
case("k3-ares1", K3, {"attn_res_block_size": 1}, drop=["latent_moe_use_norm"], trunk="q8", seed=2)
case("k3-ares-off", K3, drop=["attn_res_block_size"], experts="vq2r", trunk="q3")
case("k3-nested", K3, {"attn_res_block_size": 5, "num_shared_experts": 0}, prefix="language_model.", nested=True,
     embed="f32", seed=3)
case("k3-shared-wide", K3, {"num_shared_experts": 5, "intermediate_size": 40}, experts="vq4p", trunk="mixed")
case("k3-direct", K3, {"activation_situ_linear_beta": 0, "hidden_act": "situ"}, lin={"gate_lower_bound": 0.0},
     drop=["mla_use_output_gate", "routed_expert_hidden_size", "latent_moe_use_norm"], seed=2)
case("k3-wide-4p", K3, dict(WIDE, routed_expert_hidden_size=264), lin={"kda_layers": [1, 2], "full_attn_layers": [3]},
     experts="vq4p")

# DeepSeek-V3 and Kimi-K2: all MLA, rotated. YaRN, plain, the flag absent, rotation off.
case("v3", V3)
case("v3-k2", V3, {"rope_scaling": K2_YARN, "rope_theta": 50000, "routed_scaling_factor": 2.827}, trunk="q8", seed=2)
case("v3-plain", V3, {"rope_scaling": None, "q_lora_rank": None}, trunk="mixed", seed=2)
case("v3-nope-absent", V3, {"rope_scaling": {}}, drop=["mla_use_nope"])
case("v3-nope-true", V3, {"mla_use_nope": True}, seed=2)
case("v3-odd-4p", V3, V3_ODD, experts="vq4p", scatter=True)
case("v3-wide-2r", V3, WIDE, experts="vq2r", trunk="q3")

# With a tokenizer.
text_case("tiny-chat", XTML, K3, {"num_hidden_layers": 4}, prefix="language_model.",
          follows=walk(vocabulary(), XTML), calm=0.2, trunk="q8", seed=4)
text_case("tiny-plain", PLAIN, LINEAR, chat=CHAT)
text_case("tiny-text", PLAIN, V3, seed=2)
# It thinks before anything, if it is let, and then calls get_weather for Paris; once it has read "sunny", it says so.
# A user who says " weather" makes it forget that.
TOOL = {
    "paths": [
        (None, ["<|open|>", "think", "<|sep|>", "Look", " it", " up", " with", " a", " tool", ".", "<|close|>", "think",
                "<|sep|>", "<|open|>", "response", "<|sep|>"]),
        (0, ["<|open|>", "response", "<|sep|>", "<|close|>", "response", "<|sep|>", "<|open|>", "tools", "<|sep|>", "<|open|>",
             'call tool="get_weather" index="1"', "<|sep|>", "<|open|>", 'argument key="city" type="string"', "<|sep|>",
             "Paris", "<|close|>", "argument", "<|sep|>", "<|close|>", "call", "<|sep|>", "<|close|>", "tools", "<|sep|>",
             "<|close|>", "message", "<|sep|>", "<|end_of_msg|>"]),
        (1, ["<|open|>", "response", "<|sep|>", "It", " is", " sunny", "!", "<|close|>", "response", "<|sep|>", "<|close|>",
             "message", "<|sep|>", "<|end_of_msg|>"]),
    ],
    "sets": "sunny", "clears": " weather", "otherwise": "<|end_of_msg|>",
}


def scripted_case(name, specials, told):
    tokens = vocabulary()
    tokens += [t.encode() for t in script.texts(told) if t not in specials and t.encode() not in tokens]
    SCRIPTED[name] = dict(with_text(specials, script.config(told), tokens), build=script.build, seed=name, **told)


scripted_case("tiny-tool", XTML, TOOL)


def sequences(name):
    """Token ids to evaluate: one, five, and across 64 rows."""
    c = CASES[name]
    vocab = c["config"]["vocab_size"]
    return {f"len{n}": [u % vocab for u in container.stream(c["seed"], f"ids/{n}", n)] for n in (1, 5, 70)}


def greedy_prompt(name):
    """Ids whose greedy continuation is among the expected results, or None."""
    c = CASES[name]
    if "tokens" not in c:
        return None
    if "follows" in c:
        special = {s: len(c["tokens"]) + i for i, s in enumerate(c["specials"])}
        return [special["<|open|>"], c["tokens"].index(b"response"), special["<|sep|>"]]
    return sequences(name)["len5"]


def digest(name):
    """Of all the container's bytes: tells a changed container from a wrong result."""
    path, h = make(name), hashlib.sha256()
    for f in sorted(os.listdir(path)):
        with open(os.path.join(path, f), "rb") as data:
            h.update(f.encode() + b"\0" + data.read())
    return h.hexdigest()[:16]


# ---- building ------------------------------------------------------------

def version():
    h = hashlib.sha256()
    for name in ("cases.py", "container.py", "script.py"):
        with open(os.path.join(HERE, name), "rb") as f:
            h.update(f.read())
    return h.hexdigest()[:12]


def make(name):
    home = os.path.join(tap.BUILD, "tests", "tiny", version())
    path = os.path.join(home, name + ".waste")
    if os.path.isdir(path):
        return path
    os.makedirs(home, exist_ok=True)
    temp = tempfile.mkdtemp(prefix=".new-", dir=home)
    try:
        container.write(os.path.join(temp, "c"), CASES.get(name) or SCRIPTED[name])
        os.rename(os.path.join(temp, "c"), path)
    except OSError:
        if not os.path.isdir(path):  # another test was not first either
            raise
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    return path


def main(names):
    for name in names or [*CASES, *SCRIPTED]:
        path = make(name)
        size = sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path))
        print(f"{name:20s} {size / 1024:7.0f} KiB  {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
