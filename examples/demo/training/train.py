"""Train the demo model: packed batches, AdamW, router balancing, and a quantisation-aware
tail. Writes run/last.pt and run/log.jsonl.

One CPU thread; progress (and so the learning rate and the switch to quantisation-aware
training) follows the wall clock, so the run ends on time whatever else the machine is
doing - and two runs are never the same to the bit.

  taskset -c 0 python3 train.py --minutes 62
"""
import argparse
import json
import math
import os
import time

import torch
import torch.nn.functional as F

from bpe import Tokenizer
from chat import encode_sample
from data import Generator
from model import CONFIG, Kda, Layout, Model, Moe, spread_decay
from native import call
from paths import RUN, TOKENIZER

MAX_SAMPLE = 240                 # tokens; longer samples are dropped
BETA1, BETA2, EPSILON, WEIGHT_DECAY, CLIP = 0.9, 0.98, 1e-9, 0.05, 1.0
SMOOTH = 0.98                    # of the reported loss and expert loads
SAVE_SECONDS = 240


# ----------------------------------------------------------------- batches ---

def samples(tok, seed):
    """An endless stream of (ids, mask), 1 in 10 with [BOS]: both must work."""
    generator = Generator(seed)
    while True:
        ids, mask = encode_sample(tok, generator.sample())
        if generator.draw.chance(0.1):
            ids, mask = [tok.special["[BOS]"]] + ids, [0] + mask
        if len(ids) <= MAX_SAMPLE:
            yield ids, mask


def batches(tok, n_tokens, seed):
    """Packed batches of exactly n_tokens: (ids, mask, offsets). A short filler sequence with
    no loss completes each batch, so matrix shapes never change."""
    ids, mask, offsets = [], [], [0]
    for sample_ids, sample_mask in samples(tok, seed):
        missing = n_tokens - len(ids)
        if len(sample_ids) > missing:
            if missing:
                ids += [tok.special["[EOS]"]] * missing
                mask += [0] * missing
                offsets.append(n_tokens)
            yield ids, mask, offsets
            ids, mask, offsets = [], [], [0]
        ids += sample_ids
        mask += sample_mask
        offsets.append(len(ids))


def targets(ids, mask, offsets):
    """Rows that predict a masked-in token of the same sequence, and those tokens."""
    rows = []
    for begin, end in zip(offsets, offsets[1:]):
        rows += [t - 1 for t in range(begin + 1, end) if mask[t]]
    rows = torch.tensor(rows)
    return rows, torch.tensor(ids)[rows + 1]


# --------------------------------------------------------------- optimiser ---

class AdamW:
    """Over the model's flat buffers; weight decay on the matrices only."""

    def __init__(self, model):
        self.model, self.steps = model, 0
        self.mom, self.var = torch.zeros_like(model.flat), torch.zeros_like(model.flat)

    def step(self, lr):
        """One update with the gradient clipped to norm CLIP; returns the norm. A gradient that
        is not finite changes nothing."""
        self.steps += 1
        grad = self.model.flat_grad
        norm = math.sqrt(max(call("sumsq", grad.numel(), grad), 1e-20))
        if math.isfinite(norm):
            scale, split = min(1.0, CLIP / norm), self.model.n_matrix
            self._update(slice(0, split), lr, WEIGHT_DECAY, scale)
            self._update(slice(split, grad.numel()), lr, 0.0, scale)
        return norm

    def _update(self, span, lr, decay, scale):
        buffers = [x[span] for x in (self.model.flat, self.model.flat_grad, self.mom, self.var)]
        call("adamw", len(buffers[0]), *buffers, lr, BETA1, BETA2, EPSILON, decay,
             1 / (1 - BETA1 ** self.steps), 1 / (1 - BETA2 ** self.steps), scale)


def balance_routers(moes, gamma):
    """Nudge each expert's selection bias against its load in the last pass."""
    for moe in moes:
        moe.bias += gamma * torch.sign(moe.load.float().mean() - moe.load)
        moe.bias -= moe.bias.mean()


# -------------------------------------------------------------------- run ---

class Trainer:
    """A run: the model, its optimiser and the counters of its whole lineage of resumes."""

    def __init__(self, args, tok):
        self.args = args
        self.model = Model()
        state = {"step": 0, "tokens": 0, "loss_tokens": 0, "seconds": 0.0, "loss": None}
        if args.resume:
            state = torch.load(args.resume)
            self.model.load_state_dict(state["model"])
        if args.respread:
            self._respread(args.respread)
        self.model.flatten()
        self.moes = [m for m in self.model.modules() if isinstance(m, Moe)]
        self.adam = AdamW(self.model)
        if "mom" in state:
            self.adam.mom, self.adam.var, self.adam.steps = state["mom"], state["var"], state["adam_step"]
        self.step, self.loss = state["step"], state["loss"]
        self.tokens, self.loss_tokens = state["tokens"], state["loss_tokens"]
        self.warmup = 60 if self.step > self.adam.steps else 150       # shorter for weights already trained
        self.first_step = self.step
        self.loads = [torch.zeros(m.n_experts) for m in self.moes]     # smoothed share of the choices
        self.start = time.time() - state["seconds"]
        self.quantise = self.progress() >= args.qat
        self.batches = batches(tok, args.tokens, args.seed + self.step)

    def _respread(self, n_heads):
        """Give the last heads of every KDA layer the initial spread of decays again."""
        for m in self.model.modules():
            if isinstance(m, Kda):
                begin = m.width - n_heads * m.head_dim
                m.dt_bias.data[begin:] = spread_decay(m.width - begin, m.gate_floor)
                m.w_decay.weight.data[begin:] *= 0.3

    def seconds(self):
        return time.time() - self.start

    def progress(self):
        """0 at the start of the lineage, 1 when its minutes are over."""
        return self.seconds() / (60 * self.args.minutes)

    def learning_rate(self, progress):
        """Linear warm-up, then a cosine down to 3 %."""
        warm = min(1.0, (self.adam.steps + 1) / self.warmup)
        return self.args.lr * warm * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))

    def train_step(self, progress):
        """One batch; returns what the log says about it."""
        args = self.args
        self.step += 1
        lr = self.learning_rate(progress)
        ids, mask, offsets = next(self.batches)
        rows, wanted = targets(ids, mask, offsets)
        self.model.emit(self.quantise, args.noise, self.step)
        self.model.flat_grad.zero_()
        loss = F.cross_entropy(self.model(torch.tensor(ids), Layout(offsets), rows), wanted)
        loss.backward()
        norm = self.adam.step(lr)
        balance_routers(self.moes, 2e-3 * (lr / args.lr) + 1e-4)
        for moe, load in zip(self.moes, self.loads):
            load.mul_(SMOOTH).add_(moe.load, alpha=(1 - SMOOTH) / (args.tokens * moe.top_k))
        self.tokens += args.tokens
        self.loss_tokens += len(rows)
        self.loss = loss.item() if self.loss is None else SMOOTH * self.loss + (1 - SMOOTH) * loss.item()
        return lr, norm

    def record(self, lr, norm):
        """A line of the log. load_max, load_min: of all experts, 1 being an even share."""
        seen = 1 - SMOOTH ** (self.step - self.first_step)             # the loads began at zero
        n_experts = CONFIG["num_experts"]
        return {"step": self.step, "min": round(self.seconds() / 60, 2), "loss": round(self.loss, 4),
                "grad_norm": round(norm, 3), "lr": round(lr, 6), "tok_s": round(self.tokens / self.seconds()),
                "quant": self.quantise,
                "load_max": round(max(x.max().item() for x in self.loads) / seen * n_experts, 2),
                "load_min": round(min(x.min().item() for x in self.loads) / seen * n_experts, 2)}

    def save(self, name):
        """Write the state under the run folder, whole or not at all."""
        path = os.path.join(self.args.out, name)
        torch.save({"model": {k: v.clone() for k, v in self.model.state_dict().items()},
                    "step": self.step, "tokens": self.tokens, "loss_tokens": self.loss_tokens,
                    "seconds": self.seconds(), "loss": self.loss, "mom": self.adam.mom,
                    "var": self.adam.var, "adam_step": self.adam.steps}, path + ".tmp")
        os.replace(path + ".tmp", path)

    def run(self, log):
        saved = time.time()
        while True:
            progress = self.progress()
            if progress >= 1 or (self.args.steps and self.step >= self.args.steps):
                break
            if not self.quantise and progress >= self.args.qat:
                self.save("fp.pt")                                     # the model before any rounding
                self.quantise = True
            lr, norm = self.train_step(progress)
            if self.step % 50 == 0 or self.adam.steps <= 3:
                line = json.dumps(self.record(lr, norm))
                print(line, flush=True)
                print(line, file=log, flush=True)
            if time.time() - saved > SAVE_SECONDS:
                self.save("last.pt")
                saved = time.time()
        self.save("last.pt")
        print("done", self.step, self.tokens, self.loss)


def main():
    parser = argparse.ArgumentParser(description="train the demo model")
    parser.add_argument("--minutes", type=float, default=62, help="length of the whole lineage")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens per step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--qat", type=float, default=0.78,
                        help="progress at which quantisation-aware training starts")
    parser.add_argument("--noise", type=float, default=0.15, help="extra noise on experts from then on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=RUN, help="folder of the training state and log (default: run/)")
    parser.add_argument("--resume", default="", help="continue from this training state")
    parser.add_argument("--respread", type=int, default=0,
                        help="first give the last N KDA heads of every layer the initial log-uniform "
                        "spread of decays again")
    parser.add_argument("--steps", type=int, default=0, help="stop early (profiling)")
    args = parser.parse_args()
    if args.tokens < MAX_SAMPLE:
        parser.error(f"--tokens must be at least {MAX_SAMPLE}, the longest sample")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    tok = Tokenizer.load(TOKENIZER)
    assert tok.n_vocab == CONFIG["vocab_size"]
    with open(os.path.join(args.out, "log.jsonl"), "a") as log:
        Trainer(args, tok).run(log)


if __name__ == "__main__":
    main()
