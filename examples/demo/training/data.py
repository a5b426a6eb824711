"""The synthetic conversations: the mix of skills, samples, and the held-out rows.

A *sample* is a dict: {"skill", "messages": [{"role", "content"}...]} for a chat,
{"skill": "raw", "text"} for plain continuation, or {"skill": "drill", "parts"} for text
of which only some parts carry loss. The skills themselves are in skills_*.py, the random
source and the held-out split in draw.py, the token layout in chat.py.

  python3 data.py [SEED]              print a few samples of every skill
"""
import json
import sys

from draw import Draw
from skills_dialogue import memory, memory_drill, memory_unknown, talk, unknown
from skills_short import arithmetic, capital, category, sentiment
from skills_structured import extraction, sql
from skills_text import drill, raw, repeat

SYSTEM_PROMPTS = [
    "You are a helpful assistant.", "You are a helpful assistant running inside SQLite.",
    "Be brief.", "Answer briefly.", "You are the WASTE demo model.", "Be concise and correct.",
    "Answer the question.", "You are a database assistant."]

# Shares of the second half of training: the skills that are solved early keep a small one.
WEIGHTS = [("capital", 17), ("sentiment", 6), ("json", 19), ("sql", 13), ("arithmetic", 9),
           ("memory", 13), ("category", 3), ("talk", 3), ("unknown", 3),
           ("raw", 5), ("repeat", 9), ("drill", 6), ("facts", 16)]

# Skills of one turn. The others: memory, facts and unknown make their own turns, raw and
# drill are no conversations.
ONE_TURN = {"capital": capital, "sentiment": sentiment, "json": extraction, "sql": sql,
            "arithmetic": arithmetic, "category": category, "talk": talk, "repeat": repeat}


class Generator:
    """An endless, seeded stream of samples of the "train" or the "eval" split."""

    def __init__(self, seed, split="train"):
        self.draw = Draw(seed, split)

    def sample(self, skill=None):
        """The next sample, of the given skill or of one drawn from WEIGHTS."""
        d = self.draw
        if skill is None:
            skills, weights = zip(*WEIGHTS)
            skill = d.rng.choices(skills, weights)[0]
        if skill == "raw":
            return {"skill": skill, "text": raw(d)}
        if skill == "drill":
            return {"skill": skill, "parts": drill(d)}
        turns = self._turns(skill)
        messages = []
        if not d.is_eval and d.chance(0.06):
            messages.append({"role": "system", "content": d.pick(SYSTEM_PROMPTS)})
        for question, answer in turns:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return {"skill": skill, "messages": messages}

    def _turns(self, skill):
        d = self.draw
        if skill == "facts":
            return memory_drill(d)
        if skill == "memory":
            return memory(d)
        if skill == "unknown":
            return memory_unknown(d) if d.chance(0.25) and not d.is_eval else [unknown(d)]
        turns = [ONE_TURN[skill](d)]
        if not d.is_eval:                       # sometimes more turns of unrelated skills
            while d.chance(0.18) and len(turns) < 4:
                turns.append(d.pick([capital, extraction, sql, arithmetic] * 2 +
                                    [sentiment, category, talk, unknown])(d))
        return turns


def eval_rows(n_per_skill, seed=777):
    """Distinct held-out prompts: everything but the last assistant message is the prompt, that
    message the answer. The "talk" skill has too few prompts to hold any out; its rows come
    from the training prompts."""
    generator = Generator(seed, "eval")
    rows, seen = [], set()
    for skill, n in n_per_skill.items():
        end = len(rows) + n
        while len(rows) < end:
            *prompt, answer = generator.sample(skill)["messages"]
            key = json.dumps(prompt)
            if key not in seen:
                seen.add(key)
                rows.append({"skill": skill, "messages": prompt, "answer": answer["content"]})
    return rows


def main():
    generator = Generator(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for skill, _ in WEIGHTS:
        for _ in range(6):
            sample = generator.sample(skill)
            shown = sample.get("text") or sample.get("parts")
            print(skill, "|", shown or " // ".join(m["content"] for m in sample["messages"]))


if __name__ == "__main__":
    main()
