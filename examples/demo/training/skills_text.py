"""Training material that is no question and answer: plain text, lines of sums, copying.

The eval split has none of it.
"""
from draw import cap_first
from lexicon import COLOURS, COUNTRIES, JOBS, NAMES, PRODUCTS
from skills_short import arithmetic, capital, sentiment, sum_of_two
from skills_structured import sql

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November "
          "December").split()
OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("up", "down"), ("day", "night"), ("good", "bad"), ("old", "new"),
    ("fast", "slow"), ("high", "low"), ("open", "closed"), ("light", "dark"), ("long", "short"),
    ("wet", "dry"), ("left", "right"), ("happy", "sad"), ("rich", "poor"), ("hard", "soft")]
PLAIN_FACTS = [
    "The sky is blue.", "The grass is green.", "Snow is white.", "Water is wet.", "The sun is hot.",
    "Ice is cold.", "A week has seven days.", "A year has twelve months.", "The sea is deep.",
    "Birds can fly.", "Fish live in water.", "SQLite is a small database.", "A cat is an animal.",
    "A rose is a flower.", "The moon is round.", "An hour has sixty minutes."]
SEPARATORS = [". ", "\n", ", ", "; "]


def _two_capitals(d):
    (a, a_city, _), (b, b_city, _) = d.pick(COUNTRIES), d.pick(COUNTRIES)
    return d.pick([f"The capital of {a} is {a_city}, and the capital of {b} is {b_city}.",
                   f"The capital of {a} is {a_city}. The capital of {b} is {b_city}.",
                   f"The capital of {a} is {a_city} and the capital of {b} is {b_city}."])


def _one_country(d):
    country, city, continent = d.pick(COUNTRIES)
    return d.pick([f"The capital of {country} is {city}.",
                   cap_first(f"{country} is a country in {continent}. Its capital is {city}."),
                   f"{city} is the capital of {country}, a country in {continent}."])


def _geography(d):
    sentences = []
    for _ in range(d.rng.randint(2, 4)):
        country, city, continent = d.pick(COUNTRIES)
        sentences.append(d.pick([f"{city} is the capital of {country}.",
                                 f"The capital of {country} is {city}.",
                                 cap_first(f"{country} is in {continent}.")]))
    return " ".join(sentences)


def _sums(d):
    separator = d.pick(SEPARATORS)
    sums = [sum_of_two(d) for _ in range(d.rng.randint(3, 7))]
    return separator.join(f"{a} {op} {b} = {result}" for a, op, b, result in sums)


def _sequence(d):
    """Days, months or numbers in order, or a pair of opposites."""
    kind = d.rng.randrange(4)
    if kind == 0:
        i = d.rng.randrange(7)
        return ", ".join((DAYS * 2)[i:i + d.rng.randint(3, 7)]) + "."
    if kind == 1:
        i = d.rng.randrange(12)
        return ", ".join((MONTHS * 2)[i:i + d.rng.randint(3, 8)]) + "."
    if kind == 2:
        i = d.rng.randint(0, 90)
        return ", ".join(str(n) for n in range(i, i + d.rng.randint(4, 9))) + "."
    a, b = d.pick(OPPOSITES)
    if d.chance(0.5):
        a, b = b, a
    return f"The opposite of {a} is {b}."


def _plain_facts(d):
    return " ".join(d.rng.sample(PLAIN_FACTS, d.rng.randint(1, 4)))


def _question_and_answer(d):
    """A turn of another skill as continuous text."""
    q, a = d.pick([capital, arithmetic, sql, sentiment])(d)
    return d.pick([f"{q}\n{a}", f"Question: {q}\nAnswer: {a}", f"Q: {q}\nA: {a}", f"{q} {a}"])


def _person(d):
    name, city, job = d.name(), d.city(), d.pick(JOBS)
    return d.pick([f"{name} lives in {city}. {name} is a {job}.", f"{name} is a {job} from {city}.",
                   f"My name is {name} and I live in {city}.", f"{name} likes {d.pick(COLOURS)}."])


RAW_KINDS = [_two_capitals] * 3 + [_one_country, _geography] + [_sums] * 3 + [
    _sequence, _plain_facts, _question_and_answer, _person]


def raw(d):
    """Plain text to continue."""
    return d.pick(RAW_KINDS)(d)


def drill(d):
    """A line of sums as (text, loss) parts; only the results carry loss."""
    parts, separator = [], d.pick(SEPARATORS)
    for i in range(d.rng.randint(8, 14)):
        a, op, b, result = sum_of_two(d)
        parts += [((separator if i else "") + f"{a} {op} {b} =", 0), (f" {result}", 1)]
    return parts


def repeat(d):
    """Exact copying of names, places and invented words: a turn."""
    def word():
        kind = d.rng.randrange(6)
        if kind == 0:
            return d.pick(NAMES)
        if kind == 1:
            return d.city()
        if kind == 2:
            return d.pick(COUNTRIES)[d.rng.randrange(2)]
        if kind == 3:
            return d.pick(PRODUCTS)[d.rng.randrange(2)]
        made_up = d.invented(2, 4)
        return made_up.capitalize() if d.chance(0.8) else made_up

    separator = d.pick([" ", ", ", ", ", " and ", "; "])
    text = separator.join(word() for _ in range(d.rng.randint(1, 6)))
    return d.pick(["Repeat: {x}", "Say: {x}", "Repeat after me: {x}", "Copy this: {x}", "Echo: {x}",
                   "Write: {x}", "Please repeat: {x}"]).format(x=text), text
