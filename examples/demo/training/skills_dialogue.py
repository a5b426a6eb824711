"""Skills of conversation: small talk, what the model does not know, and memory.

`talk` and `unknown` are functions of a Draw that return a turn (user prompt, assistant
answer); the memory skills return a list of turns.
"""
import collections

from draw import OPEN, a_or_an, cap_first
from lexicon import CITIES, COLOURS, COUNTRIES, JOBS, PETNAMES, PETS, PRODUCTS
from skills_short import CAPITAL_QUESTIONS, arithmetic, capital

WHO = "I am the WASTE demo model, a tiny mixture-of-experts language model running inside SQLite."
CAN_DO = "I can answer simple questions, classify text, extract JSON, do small sums and write SQL."
DO_NOT_KNOW = "I do not know."
NOTED = "I will remember that."

# -------------------------------------------------------------- small talk ---

# prompts that share an answer
TALK = [
    (["Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Hey!", "Hello there!", "Good morning",
      "Good morning!", "Good evening", "Good afternoon!", "Greetings", "Hi, how is it going?"],
     "Hello! How can I help you?"),
    (["Who are you?", "What are you?", "Who are you", "Tell me about yourself.", "What is your name?",
      "Introduce yourself.", "Are you a language model?", "What model are you?", "What's your name?",
      "Which model is this?", "Are you an AI?", "who is this?", "Please introduce yourself."], WHO),
    (["Thanks", "Thanks!", "Thank you", "Thank you!", "Thank you very much.", "Thanks a lot!",
      "Great, thanks!", "Many thanks", "ok thanks", "Perfect, thank you."], "You are welcome!"),
    (["Bye", "Bye!", "Goodbye", "Goodbye!", "See you later.", "See you!", "Good night", "Bye bye",
      "I have to go.", "Talk to you later!"], "Goodbye!"),
    (["How are you?", "How are you today?", "How do you do?", "Are you okay?", "How is it going?",
      "How are things?"], "I am fine, thank you!"),
    (["What can you do?", "How can you help me?", "What do you know?", "Help", "What are your skills?",
      "Can you help me?", "What are you able to do?", "I need help."], CAN_DO),
]


def talk(d):
    prompts, answer = d.pick(TALK)
    return d.style(d.pick(prompts), polite=False, lower=0.2), answer


# ----------------------------------------------------------------- unknown ---

# {x} product, {y} city, {c} country, {n} year, {p} person
UNANSWERABLE = [
    "Write a poem about {x}.", "Who invented the {x}?", "What is the meaning of {x}?",
    "Tell me a joke about a {x}.", "How do I cook {x}?", "Explain {x} to me.", "Why is the {x} so big?",
    "What is the weather in {y}?", "Who won the match in {y}?", "What happened in {y} in {n}?",
    "How far is {y} from here?", "What is the price of gold?", "Who is the president of {c}?",
    "How many people live in {c}?", "Translate {x} into French.", "What time is it in {y}?",
    "Sing me a song about {y}.", "What is the best {x} in {y}?", "Who wrote the {x} of {n}?",
    "Predict the future of {c}.", "What is the currency of {c}?", "How tall is the tower of {y}?",
    "Can you draw a {x}?", "Where did {p} go?", "What did {p} eat?", "How old is {p}?",
    "What is the phone number of {p}?", "What will happen in {n}?", "Who is {p}?"]
FICTIONAL = ["Atlantis", "Narnia", "Mordor", "Wakanda", "Oz", "the Moon", "Mars", "Gondor", "Neverland",
             "Wonderland", "Utopia", "Ruritania", "Genovia", "Elbonia", "Pandora"]


def unknown(d):
    """A question outside the skills, or the capital of a country that does not exist."""
    def attempt():
        if d.chance(0.15):
            if d.chance(0.5):
                country = d.pick(FICTIONAL)
            else:
                country = d.name() + d.pick(["ia", "land", "stan", "ville"])
            i = d.rng.randrange(len(CAPITAL_QUESTIONS))
            return ("fake", country, i), cap_first(CAPITAL_QUESTIONS[i].format(c=country))
        template = d.pick(UNANSWERABLE)
        x, y, c = d.pick(PRODUCTS)[0], d.pick(CITIES), d.pick(COUNTRIES)[0]
        n, p = d.rng.randint(1900, 2025), d.name()
        return ("odd", template, x, y, c), template.format(x=x, y=y, c=c, n=n, p=p)

    return d.style(d.redraw(attempt)), DO_NOT_KNOW


# ------------------------------------------------------------------ memory ---

# Something a user says about themselves: ways to state it and to ask for it, and the two
# replies. {v} stands for the value.
Fact = collections.namedtuple("Fact", "value statements reply questions answer")

FACT_KINDS = ["name", "colour", "city", "pet", "age", "job"]


def _state(d, fact):
    return d.pick(fact.statements).format(v=fact.value)


def _recall(d, fact):
    """The turn that asks for a fact stated before."""
    return d.style(d.pick(fact.questions), polite=False), fact.answer.format(v=fact.value)


def draw_fact(d, kind):
    if kind == "name":
        return Fact(
            d.name(),
            ["My name is {v}.", "I am {v}.", "I'm {v}.", "Call me {v}.", "Hi, my name is {v}.",
             "Hello, I am {v}.", "You can call me {v}.", "My name's {v}"],
            "Nice to meet you, {v}!",
            ["What is my name?", "What's my name?", "Do you remember my name?", "Who am I?",
             "Tell me my name.", "Can you tell me my name?", "Do you know my name?"],
            "Your name is {v}.")
    if kind == "colour":
        value, word = d.pick(COLOURS), d.pick(["colour", "color"])
        return Fact(
            value,
            [f"My favourite {word} is {{v}}.", f"My favorite {word} is {{v}}.", f"I like the {word} {{v}}.",
             f"{{v}} is my favorite {word}.", f"I love the {word} {{v}}."],
            NOTED,
            [f"What is my favourite {word}?", f"What is my favorite {word}?", f"Which {word} do I like?",
             f"Do you remember my favourite {word}?", f"What {word} do I like?"],
            "Your favourite colour is {v}.")
    if kind == "city":
        return Fact(
            d.city(),
            ["I live in {v}.", "My home is in {v}.", "I am living in {v}.", "My city is {v}.",
             "I come from {v}.", "I am from {v}."],
            NOTED,
            ["Where do I live?", "Which city do I live in?", "What is my city?", "Where am I from?",
             "Do you remember where I live?", "In which city do I live?"],
            "You live in {v}.")
    if kind == "pet":
        value, pet = d.pick(PETNAMES), d.pick(PETS)
        return Fact(
            value,
            [f"My {pet} is called {{v}}.", f"I have a {pet} named {{v}}.", f"My {pet}'s name is {{v}}.",
             f"I have a {pet} called {{v}}."],
            NOTED,
            [f"What is my {pet} called?", f"What is the name of my {pet}?", f"What's my {pet}'s name?",
             f"Do you remember the name of my {pet}?"],
            f"Your {pet} is called {{v}}.")
    if kind == "age":
        return Fact(
            str(d.rng.randint(6, 95)),
            ["I am {v} years old.", "My age is {v}.", "I'm {v} years old.", "I turned {v} today."],
            NOTED,
            ["How old am I?", "What is my age?", "Do you remember my age?", "Can you tell me how old I am?"],
            "You are {v} years old.")
    value = d.pick(JOBS)
    an = a_or_an(value)
    return Fact(
        value,
        [f"I work as {an} {{v}}.", "My job is {v}.", f"I am {an} {{v}}."],
        NOTED,
        ["What is my job?", "What do I do for work?", "Do you remember my job?", "What do I work as?"],
        f"You work as {an} {{v}}.")


def memory(d):
    """One or two facts, some turns about other things, then a question about a fact."""
    def attempt():
        n_facts = 2 if d.chance(0.45) else 1
        kinds = d.rng.sample(FACT_KINDS, n_facts)
        if "name" not in kinds and d.chance(0.3):
            kinds[0] = "name"
        facts = [draw_fact(d, kind) for kind in kinds]
        asked = d.rng.randrange(n_facts)
        n_fillers = d.rng.randint(1, 3) if n_facts == 1 else d.rng.randint(0, 2)
        if kinds == ["colour"]:                          # 15 colours are too few to hold any out
            key = OPEN
        else:
            key = ("mem", tuple(kinds), tuple(f.value for f in facts), asked)
        return key, (kinds, facts, asked, n_fillers)

    kinds, facts, asked, n_fillers = d.redraw(attempt)
    turns = []
    if len(facts) == 2 and d.chance(0.35):               # both in one message
        first, second = [_state(d, fact).rstrip(".") for fact in facts]
        statement = cap_first(first) + d.pick([" and ", ". "]) + second + "."
        reply = NOTED
        if "name" in kinds:
            named = facts[kinds.index("name")]
            reply = named.reply.format(v=named.value)
        turns.append((statement, reply))
    else:
        for fact in facts:
            statement = cap_first(_state(d, fact))
            if not d.chance(0.85):
                statement = statement.rstrip(".")
            turns.append((statement, fact.reply.format(v=fact.value)))
    for _ in range(n_fillers):
        at = d.rng.randint(1, len(turns))
        turns.insert(at, d.pick([talk, talk, arithmetic, capital, unknown])(d))
    turns.append(_recall(d, facts[asked]))
    if len(facts) == 2 and d.chance(0.4):
        turns.append(_recall(d, facts[1 - asked]))
    return turns


def memory_unknown(d):
    """A question about a fact that was never stated."""
    fact = draw_fact(d, d.pick(FACT_KINDS))
    turns = [talk(d)] if d.chance(0.3) else []
    return turns + [(d.style(d.pick(fact.questions), polite=False), DO_NOT_KNOW)]


def memory_drill(d):
    """Dense practice. Mostly three facts in one statement, then a question about each: three
    recalls per chat. (The eval split only has one- and two-fact chats.)"""
    if d.chance(0.4):                                    # colours are recalled last: practise them most
        fact = draw_fact(d, "colour")
        return [(cap_first(_state(d, fact)), fact.reply), _recall(d, fact)]
    kinds = ["colour"] if d.chance(0.8) else []
    kinds += d.rng.sample([kind for kind in FACT_KINDS if kind not in kinds], 3 - len(kinds))
    facts = [draw_fact(d, kind) for kind in kinds]
    d.rng.shuffle(facts)
    stated = [_state(d, fact).rstrip(".") for fact in facts]
    statement = d.pick([". ".join(map(cap_first, stated)), ", ".join(stated[:2]) + " and " + stated[2]])
    turns = [(cap_first(statement + "."), NOTED)]
    if d.chance(0.4):
        turns.append(d.pick([talk, arithmetic, capital])(d))
    d.rng.shuffle(facts)
    return turns + [_recall(d, fact) for fact in facts]
