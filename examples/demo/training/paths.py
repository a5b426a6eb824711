"""Where the pipeline's files are, relative to this folder."""
import os

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.dirname(HERE)

CHECKPOINT = os.path.join(DEMO, "checkpoint")                # the released model
TOKENIZER = os.path.join(CHECKPOINT, "tiktoken.model")
EVAL_ROWS = os.path.join(DEMO, "eval.jsonl")
RUN = os.path.join(HERE, "run")                              # what a training run writes
LAST = os.path.join(RUN, "last.pt")
