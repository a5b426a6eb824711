"""Damaged copies of the small containers, and what has to happen to each.

CASES is a list of Case:
  name     says what is wrong
  change   called with a Copy; alters it
  verb     what finds it (tests/tools/logits.c): "open", "touch" (every expert
           is read) or "text"
  expect   "error": refused, and the sentence holds every string of `names`;
           "accept": works although unusual;
           "any": either, but alive
  names    {L} and {bank} stand for the first MoE layer and its bank
  verify   with checksums on; without them "touch" must then live through it
  base     the container that is damaged

    python3 tests/fault/damage.py            lists them
    python3 tests/fault/damage.py NAME DIR   writes one of them to DIR
"""
import collections
import json
import os
import struct
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tiny import cases  # noqa: E402

Case = collections.namedtuple("Case", "name change verb expect names verify base")
CASES = []
HEADER = "<IHHBBHHHIIIIIIII"
FIELDS = ("magic", "layer", "expert", "fmt", "flags", "codebook", "lowrank", "zero", "blocks", "gate", "up", "down",
          "scale", "crc", "zero1", "zero2")


def case(name, change, names=(), verb="open", expect="error", verify=False, base="tiny-chat"):
    CASES.append(Case(name, change, verb, expect, names if isinstance(names, tuple) else (names,), verify, base))


class Copy:
    """A container whose files are links until they are altered."""

    def __init__(self, base, path):
        self.path, source = path, cases.make(base)
        os.makedirs(path)
        for f in os.listdir(source):
            os.link(os.path.join(source, f), os.path.join(path, f))
        self.manifest = json.loads(self.get("manifest.json"))
        self.before = json.dumps(self.manifest)
        self.config = self.manifest["config"]
        self.quant = self.manifest["expert_quant"]
        self.trunk = self.manifest["trunk"]
        self.number = min(self.manifest["layers"], key=int)
        self.layer = self.manifest["layers"][self.number]
        self.bank = self.layer["file"]
        self.size = self.layer["bytes"] // self.layer["experts"]
        self.scales = 2 * (2 * self.config["moe_intermediate_size"] +
                           self.config.get("routed_expert_hidden_size", self.config["hidden_size"]))

    def get(self, name):
        with open(os.path.join(self.path, name), "rb") as f:
            return f.read()

    def remove(self, name):
        os.unlink(os.path.join(self.path, name))

    def put(self, name, data):
        if os.path.lexists(os.path.join(self.path, name)):
            self.remove(name)
        with open(os.path.join(self.path, name), "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())

    def edit(self, name, change):
        """change(bytearray) alters it in place or returns another."""
        data = bytearray(self.get(name))
        other = change(data)
        self.put(name, bytes(data if other is None else other))

    def tensor(self, end):
        return next(e for e in self.trunk if e["name"].endswith(end))

    def quantised(self):
        return next(e for e in self.trunk if e["fmt"] and e["name"].endswith("self_attn.o_proj.weight"))

    def records(self, change):
        """change(data, start, end of scales) for every record of the first bank."""
        def each(data):
            for at in range(0, len(data), self.size):
                change(data, at, at + struct.unpack_from("<I", data, at + 32)[0] + self.scales)
        self.edit(self.bank, each)

    def header(self, **change):
        def one(data, at, _):
            f = dict(zip(FIELDS, struct.unpack_from(HEADER, data, at)))
            for k, v in change.items():
                f[k] = v(f[k]) if callable(v) else v
            struct.pack_into(HEADER, data, at, *f.values())
        self.records(one)

    def checksum(self, data, at, end):
        struct.pack_into("<I", data, at + 36, zlib.crc32(data[at + 48:end]))

    def finish(self):
        after = json.dumps(self.manifest)  # as text: to Python 1 is True
        if after != self.before:
            self.put("manifest.json", after)


def write(c, path):
    """Makes the copy; names with the places filled in."""
    x = Copy(c.base, path)
    c.change(x)
    x.finish()
    return [n.format(L=x.number, bank=x.bank) for n in c.names]


# ---- manifest.json as a file ---------------------------------------------

def text_case(name, change, expect="error", names=("manifest.json",)):
    case("manifest " + name, lambda c: c.edit("manifest.json", lambda d: change(bytes(d))), names, expect=expect)


case("manifest missing", lambda c: c.remove("manifest.json"), "manifest.json")
text_case("empty", lambda t: b"")
text_case("cut in the middle", lambda t: t[:len(t) // 2])
text_case("without its last brace", lambda t: t.rstrip()[:-1])
text_case("not JSON", lambda t: b"hello")
text_case("an array", lambda t: b"[1,2,3]")
text_case("a number", lambda t: b"0")
text_case("followed by more", lambda t: t + b"}}garbage")
text_case("with a NUL byte", lambda t: t[:200] + b"\0" + t[200:])
text_case("with a byte order mark", lambda t: b"\xef\xbb\xbf" + t, expect="any")
text_case("100000 arrays deep", lambda t: b"[" * 100000)
text_case("an unused key 5000 arrays deep", lambda t: b'{"z":' + b"[" * 5000 + b"]" * 5000 + b"," + t[1:])
text_case("an unused key of 4 MB", lambda t: b'{"z":"' + b"x" * (4 << 20) + b'",' + t[1:], expect="accept", names=())
text_case("ending inside a string", lambda t: b'{"format_version": 0, "arch": "kimi')
text_case("ending inside an escape", lambda t: b'{"format_version": 0, "arch": "kimi\\')
text_case("invalid UTF-8 in a string", lambda t: t.replace(b"self_attn", b"self\xff\xfeattn", 1), expect="any")
text_case("two num_hidden_layers", lambda t: t.replace(b'"num_hidden_layers":', b'"num_hidden_layers": 1, '
                                                      b'"num_hidden_layers":', 1), expect="any")
text_case("escaped letters in names", lambda t: t.replace(b"input_layernorm", b"input\\u005flayern\\u006frm"),
          expect="accept", names=())
text_case("with tabs and CRLF", lambda t: t.replace(b"\n", b"\r\n\t"), expect="accept", names=())


def directory(c, name):
    c.remove(name)
    os.mkdir(os.path.join(c.path, name))


case("manifest a directory", lambda c: directory(c, "manifest.json"), "manifest.json")
case("unknown keys everywhere",
     lambda c: [d.update({"a_new_key": {"x": [1, {"y": None}]}})
                for d in (c.manifest, c.config, c.quant, c.layer, c.tensor("model.norm.weight"))], expect="accept")

# ---- top-level keys -------------------------------------------------------

for value in (1, -1, "0", None, 0.5, "absent"):
    case(f"format_version {value!r}",
         lambda c, v=value: c.manifest.pop("format_version") if v == "absent" else
         c.manifest.update(format_version=v), "format_version")
case("no config", lambda c: c.manifest.pop("config"), "config")
case("config null", lambda c: c.manifest.update(config=None), "config")
case("config a list", lambda c: c.manifest.update(config=[c.config]), "config")
case("no layers", lambda c: c.manifest.pop("layers"), ("layer {L}",))
case("no trunk", lambda c: c.manifest.pop("trunk"), "trunk")
case("trunk an object", lambda c: c.manifest.update(trunk={"a": 1}), "trunk")
case("trunk empty", lambda c: c.manifest.update(trunk=[]), "trunk")
case("tensor_prefix of nothing there", lambda c: c.manifest.update(tensor_prefix="wrong."), "wrong.model.")
case("tensor_prefix of 5000 bytes", lambda c: c.manifest.update(tensor_prefix="x" * 5000), "tensor_prefix")
case("tensor_prefix a number", lambda c: c.manifest.update(tensor_prefix=7), "tensor_prefix")

# ---- config ----------------------------------------------------------------

BAD_CONFIG = {
    "num_hidden_layers": (-3, 0, 129, 2 ** 31 - 1, 2 ** 63 - 1, "4", None),
    "hidden_size": (0, -64, 2 ** 40, 1e308, 128.5, "64", [64]),
    "vocab_size": (0, 2 ** 24 + 1, "many"),
    "num_attention_heads": (0, -1, 2 ** 17),
    "rms_norm_eps": (0, -1e-5, 1, "small"),
    "num_experts": (-1, 65536, 2 ** 30, "eight"),
    "num_experts_per_token": (0, -1, 11, 10000),
    "moe_intermediate_size": (0, -8, 2 ** 31),
    "intermediate_size": (0, 2 ** 21),
    "num_shared_experts": (-1, 65, 2 ** 20),
    "first_k_dense_replace": (-1, 99),
    "attn_res_block_size": (-1, 99),
    "routed_expert_hidden_size": (-8, 2 ** 21),
    "kv_lora_rank": (0, -1, 2 ** 21),
    "q_lora_rank": (-1, 2 ** 21),
    "qk_nope_head_dim": (-1, 2 ** 21),
    "qk_rope_head_dim": (-8, 2 ** 21),
    "v_head_dim": (0, 2 ** 21),
    "mla_use_nope": (1, "true", None),
    "routed_scaling_factor": ("much",),
}
BAD_LINEAR = {
    "num_heads": (0, -1, 2 ** 17),
    "head_dim": (0, -1, 2 ** 17),
    "short_conv_kernel_size": (0, -1, 65),
    "kda_layers": ("all", ["one"]),
}
for key, values in BAD_CONFIG.items():
    for value in values:
        case(f"config {key} {value!r}", lambda c, k=key, v=value: c.config.update({k: v}), ("manifest.json", key))
for key, values in BAD_LINEAR.items():
    for value in values:
        case(f"config linear_attn_config.{key} {value!r}",
             lambda c, k=key, v=value: c.config["linear_attn_config"].update({k: v}), ("manifest.json", key))


def config_case(name, names=(), expect="error", base="tiny-chat", **values):
    case("config " + name, lambda c: c.config.update(values), names, expect=expect, base=base)


for key in ("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "num_experts_per_token"):
    case(f"config without {key}", lambda c, k=key: c.config.pop(k), ("manifest.json", key))
config_case("an integer beyond 64 bits", ("manifest.json",), num_hidden_layers=2 ** 64)
config_case("more layers than there are", ("layer 4",), num_hidden_layers=40)
config_case("hidden_size other than the tensors'", (".weight", "72"), hidden_size=72)
config_case("vocab_size beyond the embedding", ("embed_tokens.weight", "100000"), vocab_size=100000)
config_case("kv_lora_rank other than the tensors'", ("kv_a_",), kv_lora_rank=2 ** 19)
config_case("moe_intermediate_size no multiple of vec_dim", ("moe_intermediate_size", "vec_dim"),
            moe_intermediate_size=23)
config_case("another moe_intermediate_size", ("shared_experts", "layers.{L}."), moe_intermediate_size=32)
config_case("more experts than in the banks", ("layer {L}", "experts"), num_experts=11)
config_case("scale infinite", expect="any", routed_scaling_factor=float("inf"))
config_case("eps not a number", ("manifest.json",), rms_norm_eps=float("nan"))
config_case("eos_token_id a list", expect="accept", eos_token_id=[1, 2])
case("config kda_layers beyond the model",
     lambda c: c.config["linear_attn_config"]["kda_layers"].extend([0, -5, 10 ** 6]), expect="any")
case("config KDA heads x dim beyond 2^31",
     lambda c: c.config["linear_attn_config"].update(num_heads=65536, head_dim=65536), ("num_heads", "head_dim"))
case("config more taps than the tensors have",
     lambda c: c.config["linear_attn_config"].update(short_conv_kernel_size=16), "conv1d.weight")
case("config fewer KDA layers",
     lambda c: c.config["linear_attn_config"].update(kda_layers=[2, 4]), "layers.0.self_attn")
for name, scaling in (("of another type", {"type": "dynamic", "factor": 4.0}), ("without a type", {"factor": 4.0}),
                      ("a number", 4), ("of two mscales", {"type": "yarn", "factor": 4.0, "mscale": 2.0})):
    config_case("rope_scaling " + name, ("rope_scaling",), base="v3", rope_scaling=scaling)
config_case("a rotated slice of 4096", ("qk_rope_head_dim",), base="v3", qk_rope_head_dim=4096)
config_case("an odd rotated slice", ("rope",), base="v3", qk_rope_head_dim=7)
config_case("rope_theta 0", ("rope_theta",), base="v3", rope_theta=0)

# ---- expert_quant -----------------------------------------------------------

for key, values in {"stages": (0, -1, 9, 2.5), "vec_dim": (0, 65, 2 ** 30), "entries": (0, 257),
                    "index_bits": (7, 6, 16), "index_block": (-1, 32, 128)}.items():
    for value in values:
        case(f"expert_quant {key} {value}", lambda c, k=key, v=value: c.quant.update({k: v}), ("expert_quant", key))
for key, value in (("vec_dim", 4), ("vec_dim", 7)):
    case(f"expert_quant {key} {value}: not what the codebooks have",
         lambda c, k=key, v=value: c.quant.update({k: v}), ("expert_quant",))
for key, value in (("stages", 2), ("index_block", 0)):  # here a record is one page either way
    case(f"expert_quant {key} {value}: not what the records have",
         lambda c, k=key, v=value: c.quant.update({k: v}), ("{bank}", "layer {L}", "up_off"), verb="touch")
case("expert_quant entries 128: half of each codebook", lambda c: c.quant.update(entries=128), "codebook")
case("expert_quant a list", lambda c: c.manifest.update(expert_quant=[1]), "expert_quant")


def more_stages(c):
    """Codebooks enough for 8 stages, so only the records are too short."""
    c.quant.update(stages=8)
    c.edit("codebooks.bin", lambda d: d * 4)


case("expert_quant stages 8 and codebooks for it", more_stages, ("layer {L}",))

# ---- trunk index -------------------------------------------------------------

for key, values in {
        "off": (-4096, 1 << 40, 1 << 62, 1e300, "0"), "scale_off": (-2, 1 << 40, 1e300),
        "fmt": (1, 4, 8, 99, -1, "q4"), "group": (0, -128, 1 << 30, "wide"), "bytes": (1, 1 << 50),
        "shape": ([], [0, 64], [-1, 64], [2 ** 31, 2 ** 31], [2 ** 22] * 3, [1, 1, 1, 64, 48], "64x48", [64, "48"],
                  [63, 48], [48, 64], [64 * 48], None)}.items():
    for value in values:
        case(f"trunk {key} {value!r}".replace(" ", " o_proj ", 1),
             lambda c, k=key, v=value: c.quantised().update({k: v}), "o_proj.weight")
for name, value in (("of 10000 bytes", "x" * 10000), ("a number", 5), ("empty", ""), ("with a NUL", "a\0b")):
    case(f"trunk a name {name}", lambda c, v=value: c.quantised().update(name=v), "trunk")
case("trunk a name of printf directives", lambda c: c.quantised().update(name="%s%n%x%d" * 12), "o_proj.weight")
case("trunk an entry that is no object", lambda c: c.trunk.append(3), "trunk")
case("trunk data at the very end", lambda c: c.quantised().update(off=len(c.get("trunk.bin")) - 100), "o_proj.weight")
case("trunk scales at the very end", lambda c: c.quantised().update(scale_off=len(c.get("trunk.bin")) - 2),
     "o_proj.weight")
case("trunk scales over the data", lambda c: c.quantised().update(scale_off=c.quantised()["off"]), expect="any",
     verb="touch")
for end in ("model.norm.weight", "input_layernorm.weight", "q_conv1d.weight", "A_log", "dt_bias", "o_norm.weight",
            "mlp_res_proj.weight", "e_score_correction_bias", "routed_expert_norm.weight"):
    case(f"trunk {end} as Q8", lambda c, e=end: c.tensor(e).update(fmt=2, group=128, scale_off=0, bytes=None), end)
for end in ("embed_tokens.weight", "lm_head.weight", "model.norm.weight", "kv_b_proj.weight", "q_a_layernorm.weight",
            "A_log", "f_b_proj.weight", "output_attn_res_norm.weight", "block_sparse_moe.gate.weight",
            "shared_experts.up_proj.weight", "routed_expert_up_proj.weight", "mlp.down_proj.weight"):
    case(f"trunk without {end}", lambda c, e=end: c.trunk.remove(c.tensor(e)), end)
for end in ("model.norm.weight", "e_score_correction_bias", "A_log", "k_conv1d.weight", "kv_a_layernorm.weight"):
    case(f"trunk {end} of one element",
         lambda c, e=end: c.tensor(e).update(shape=[1], bytes=4), end)
case("trunk one tensor twice", lambda c: c.trunk.append(dict(c.quantised(), shape=[8, 8], bytes=None)),
     expect="accept")
case("trunk one tensor 50000 times", lambda c: c.trunk.extend([c.tensor("model.norm.weight")] * 50000),
     expect="accept")

# ---- trunk.bin ----------------------------------------------------------------


def overwrite(end, fmt, value, n, field="off"):
    def change(c):
        e = c.tensor(end)
        c.edit("trunk.bin", lambda d: struct.pack_into(f"<{n}{fmt}", d, e[field], *[value] * n))
    return change


case("trunk.bin missing", lambda c: c.remove("trunk.bin"), "trunk.bin")
case("trunk.bin empty", lambda c: c.put("trunk.bin", b""), "trunk")
case("trunk.bin half as long", lambda c: c.edit("trunk.bin", lambda d: d[:len(d) // 2]), "trunk")
case("trunk.bin one byte short", lambda c: c.edit("trunk.bin", lambda d: d[:-1]), "trunk")
case("trunk.bin longer", lambda c: c.edit("trunk.bin", lambda d: d + bytes(4096)), verb="touch", expect="accept")
case("trunk.bin a directory", lambda c: directory(c, "trunk.bin"), "trunk.bin")
case("trunk.bin NaN scales", overwrite("self_attn.o_proj.weight", "H", 0x7E00, 8, "scale_off"), verb="touch",
     expect="any")
case("trunk.bin an infinite norm", overwrite("model.norm.weight", "I", 0x7F800000, 1), verb="touch", expect="any")
case("trunk.bin a NaN norm before the router", overwrite("post_attention_layernorm.weight", "I", 0x7FC00000, 64),
     verb="touch", expect="any")
case("trunk.bin NaN correction bias", overwrite("e_score_correction_bias", "I", 0x7FC00000, 10), verb="touch",
     expect="any")
case("trunk.bin huge A_log", overwrite("A_log", "f", 1e38, 3), verb="touch", expect="any")

# ---- layers ---------------------------------------------------------------------

for key, values in {
        "experts": (9, 0, -1, 2 ** 31, "ten"), "bytes": (0, -4096, 10 ** 18, 40961, 10 * 16, 10 * 4000, 10 * 8192),
        "codebook_base": (-1, 28, 10 ** 6, 2 ** 40, 0.5),
        "file": ("../../../../etc/passwd", "/etc/passwd", "a\\b", "..", ".", "", "x" * 5000, 7, None)}.items():
    for value in values:
        case(f"layers {key} {str(value)[:40]!r}", lambda c, k=key, v=value: c.layer.update({k: v}), "layer {L}")
case("layers without one", lambda c: c.manifest["layers"].pop(c.number), "layer {L}")
case("layers empty", lambda c: c.manifest.update(layers={}), "layer {L}")
case("layers a list", lambda c: c.manifest.update(layers=[c.layer]), "layers")
case("layers one a number", lambda c: c.manifest["layers"].update({c.number: 5}), "layer {L}")
case("layers one for a dense layer", lambda c: c.manifest["layers"].update({"0": dict(c.layer)}), "layer 0")
case("layers one past the last", lambda c: c.manifest["layers"].update({"9999": dict(c.layer), "-1": dict(c.layer)}),
     expect="accept")
case("layers two with one bank", lambda c: c.manifest["layers"]["2"].update(file=c.bank), ("{bank}", "layer 2"),
     verb="touch")

# ---- banks -----------------------------------------------------------------------

case("bank missing", lambda c: c.remove(c.bank), "{bank}")
case("bank a directory", lambda c: directory(c, c.bank), "{bank}")
case("bank empty", lambda c: c.put(c.bank, b""), ("{bank}", "layer {L}"))
case("bank ending inside a record", lambda c: c.edit(c.bank, lambda d: d[:c.size + 100]), ("{bank}", "layer {L}"))
case("bank without its last record", lambda c: c.edit(c.bank, lambda d: d[:-c.size]), ("{bank}", "layer {L}"))
case("bank one byte short", lambda c: c.edit(c.bank, lambda d: d[:-1]), ("{bank}", "layer {L}"))
case("bank longer", lambda c: c.edit(c.bank, lambda d: d + bytes(4096)), verb="touch", expect="any")


def bank_case(name, change, *names):
    case("bank " + name, lambda c: c.edit(c.bank, lambda d: change(c, d)), ("{bank}", "layer {L}") + names,
         verb="touch")


bank_case("all zeros", lambda c, d: bytes(len(d)), "magic")
bank_case("shifted by a page", lambda c, d: (bytes(4096) + d)[:len(d)], "expert")
bank_case("with two records swapped", lambda c, d: d[c.size:2 * c.size] + d[:c.size] + d[2 * c.size:], "expert")
bank_case("of another layer", lambda c, d: c.get(c.manifest["layers"]["2"]["file"]))

# ---- record headers ----------------------------------------------------------------


def record_case(name, names=(), **fields):
    case("record " + name, lambda c: c.header(**fields), ("{bank}", "layer {L}", "expert") + names, verb="touch")


record_case("magic", ("magic",), magic=0x12345678)
record_case("of layer 99", ("99",), layer=99)
record_case("of the neighbouring expert", expert=lambda v: v ^ 1)
record_case("fmt 6", ("fmt",), fmt=6)
record_case("fmt of the other packing", ("fmt",), fmt=8)
record_case("with a low-rank id", ("lowrank",), lowrank=1)
record_case("of no blocks", ("rec_4k_blocks",), blocks=0)
record_case("of 2^32-1 blocks", ("rec_4k_blocks",), blocks=2 ** 32 - 1)
for field, values in {"gate": (0, 47, 2 ** 32 - 1), "up": (48, 2 ** 31), "down": (0, 2 ** 32 - 8),
                      "scale": (64, 2 ** 32 - 8)}.items():
    for value in values:
        record_case(f"{field}_off {value}", (field + "_off",), **{field: value})
    record_case(f"{field}_off one less", (field + "_off",), **{field: lambda v: v - 1})
    record_case(f"{field}_off one more", (field + "_off",), **{field: lambda v: v + 1})
record_case("codebook_id 65535", ("codebook_id",), codebook=65535)
record_case("codebook_id one more", ("codebook_id",), codebook=lambda v: v + 1)
record_case("codebook_id of another layer", ("codebook_id",), codebook=lambda v: v + 9)
case("record flags set", lambda c: c.header(flags=7, zero=1, zero1=2), verb="touch", expect="accept")

# ---- record payload ------------------------------------------------------------------


def flip(data, at, bit):
    data[at] ^= bit


CHECKED = ("{bank}", "layer {L}", "expert", "checksum")
case("record a bit of the indices", lambda c: c.records(lambda d, at, end: flip(d, at + 60, 16)), CHECKED, "touch",
     verify=True)
case("record the first payload byte", lambda c: c.records(lambda d, at, end: flip(d, at + 48, 1)), CHECKED, "touch",
     verify=True)
case("record the last byte of the scales", lambda c: c.records(lambda d, at, end: flip(d, end - 1, 1)), CHECKED,
     "touch", verify=True)
case("record the checksum", lambda c: c.header(crc=lambda v: v ^ 1), CHECKED, "touch", verify=True)


def padding(d, at, end):
    if end % 4096:
        flip(d, end, 255)
        flip(d, (end + 4095) // 4096 * 4096 - 1, 255)


case("record the padding", lambda c: c.records(padding), verb="touch", expect="accept", verify=True)


def all_scales(value):
    def change(c):
        def one(d, at, end):
            d[end - c.scales:end] = struct.pack("<H", value) * (c.scales // 2)
            c.checksum(d, at, end)
        c.records(one)
    return change


case("record NaN scales", all_scales(0x7E00), verb="touch", expect="any", verify=True)
case("record infinite scales", all_scales(0x7C00), verb="touch", expect="any", verify=True)


def high_indices(c):
    """255 where there are 32 entries, or 16: nothing may be read past a book."""
    def one(d, at, end):
        d[at + 48:end - c.scales] = b"\xff" * (end - c.scales - at - 48)
        c.checksum(d, at, end)
    c.records(one)


case("record indices past 32 entries", high_indices, verb="touch", expect="any", verify=True, base="linear-stages4")
case("record indices past 16 entries", high_indices, verb="touch", expect="any", verify=True, base="linear-vecdim4")

# ---- codebooks -----------------------------------------------------------------------


def books_case(name, change, names="codebooks.bin", **more):
    case("codebooks " + name, lambda c: c.edit("codebooks.bin", change), names, **more)


case("codebooks missing", lambda c: c.remove("codebooks.bin"), "codebooks.bin")
books_case("empty", lambda d: b"")
books_case("100 bytes short", lambda d: d[:-100])
books_case("one book short", lambda d: d[:-4112])
books_case("of another magic", lambda d: struct.pack_into("<I", d, 0, 0))
books_case("of another id", lambda d: struct.pack_into("<H", d, 4, 7))
books_case("of vec_dim 16", lambda d: struct.pack_into("<B", d, 7, 16))
books_case("of 2^31 entries", lambda d: struct.pack_into("<I", d, 8, 2 ** 31))
books_case("NaN", lambda d: struct.pack_into("<32H", d, 16, *[0x7E00] * 32), verb="touch", expect="any")

# ---- text files ------------------------------------------------------------------------


def file_case(name, file, data, expect="any", names=None, base="tiny-chat", verb="text"):
    change = data if callable(data) else lambda d: data
    case(f"{file} {name}", lambda c: c.edit(file, lambda d: change(bytes(d))),
         (names or (file,)) if expect == "error" else (), verb, expect, base=base)


RANKS, SPECIALS = "tokenizer.model", "specials.json"
file_case("empty", RANKS, b"")
file_case("of any bytes", RANKS, bytes(range(256)) * 40)
file_case("with a huge rank", RANKS, lambda d: d + b"YWFh 2147483647\n")
file_case("with a rank of 30 digits", RANKS, lambda d: d + b"YWFh 1000000000000000000000000000000\n")
file_case("with a negative rank", RANKS, b"YQ== -1\n", "error")
file_case("with bad base64", RANKS, lambda d: b"!!!! 5\n" + d, "error")
file_case("with an empty token", RANKS, lambda d: b" 0\n" + d, "error")
file_case("with a rank twice", RANKS, lambda d: d + b"YWFh 3\n")
file_case("with a token twice", RANKS, lambda d: d + b"YQ== 330\n")
file_case("without some bytes", RANKS, b"aGVsbG8= 0\nd29ybGQ= 1\n")
file_case("without its last newline", RANKS, lambda d: d[:-1], "accept")
file_case("with CRLF", RANKS, lambda d: d.replace(b"\n", b"\r\n"), "accept")
file_case("with empty lines", RANKS, lambda d: d.replace(b"\n", b"\n\n"), "accept")
file_case("not JSON", SPECIALS, b'"id" "text" : {', "error")
file_case("an object", SPECIALS, b"{}", "error")
file_case("100000 arrays deep", SPECIALS, b"[" * 100000, "error")
file_case("with a negative id", SPECIALS, b'[{"id": -5, "text": "<|x|>"}]', "error")
file_case("with an id beyond the vocabulary", SPECIALS, b'[{"id": 2000000000, "text": "<|x|>"}]', "error")
file_case("with an empty text", SPECIALS, b'[{"id": 360, "text": ""}]')
file_case("with a text twice", SPECIALS, b'[{"id": 360, "text": "<|x|>"}, {"id": 361, "text": "<|x|>"}]')
file_case("with an id twice", SPECIALS, b'[{"id": 360, "text": "<|x|>"}, {"id": 360, "text": "<|y|>"}]')
file_case("with texts of 100 kB", SPECIALS, json.dumps([{"id": 360, "text": "x" * 100000}]).encode())


def chat_case(name, change, expect="error", names=("chat.json",)):
    def edit(d):
        value = json.loads(d)
        return json.dumps(change(value) or value).encode()
    file_case(name, "chat.json", edit, expect, names, base="tiny-plain")


file_case("not JSON", "chat.json", b"{{{{", "error", base="tiny-plain")
file_case("100000 arrays deep", "chat.json", b"[" * 100000, "error", base="tiny-plain")
chat_case("a list", lambda v: [v])
chat_case("without user", lambda v: v.pop("user") and None, names=("chat.json", "user"))
chat_case("user of one string", lambda v: v.update(user=["only"]), names=("chat.json", "user"))
chat_case("user of numbers", lambda v: v.update(user=[1, 2]), names=("chat.json", "user"))
chat_case("system a number", lambda v: v.update(system=5), names=("chat.json", "system"))
chat_case("without open", lambda v: v.pop("open") and None, names=("chat.json", "open"))
chat_case("open empty", lambda v: v.update(open=""), names=("chat.json", "open"))
chat_case("assistant without a marker", lambda v: v.update(assistant=["", "\n"]), names=("chat.json", "assistant"))
chat_case("a marker that is no token", lambda v: v.update(user=["<|im_start|>user", "<|im_end|>"]),
          names=("chat.json", "<|im_start|>"))
chat_case("without system", lambda v: v.pop("system") and None, "accept")
case("chat.json unusable, the rest of the container is not", lambda c: c.put("chat.json", "{}"), verb="open",
     expect="accept", base="tiny-plain")

# ---- usage.waste -------------------------------------------------------------------------

case("usage.waste of any bytes", lambda c: c.put("usage.waste", bytes(range(256)) * 17), verb="touch",
     expect="accept")
case("usage.waste of layers and experts that do not exist",
     lambda c: c.put("usage.waste", struct.pack("<IIQ", 0x47535557, 1, 5) +
                     b"".join(struct.pack("<HHIII", l, e, 9, 9, 0)
                              for l, e in ((60000, 0), (0, 0), (1, 65535), (65535, 65535)))),
     verb="touch", expect="accept")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(write(next(c for c in CASES if c.name == sys.argv[1]), sys.argv[2]))
    else:
        for c in CASES:
            print(f"{c.expect:7s} {c.verb:6s} {c.name}")
