"""Skills with a short answer: capitals and continents, sentiment, sums, categories.

A skill is a function of a Draw that returns a turn: (user prompt, assistant answer).
"""
from draw import OPEN, cap_first
from lexicon import COLOURS, COUNTRIES, NEG_ADJ, NEU_ADJ, POS_ADJ, PRODUCTS, THINGS

# --------------------------------------------------- capitals, continents ---

# {c} country, {k} capital
CAPITAL_QUESTIONS = [
    "What is the capital of {c}?", "What's the capital of {c}?", "Capital of {c}?",
    "Tell me the capital of {c}.", "Which city is the capital of {c}?",
    "Name the capital city of {c}.", "Do you know the capital of {c}?",
    "What is the capital city of {c}?", "Can you tell me the capital of {c}?",
    "I need to know the capital of {c}.", "Give me the capital of {c}.",
    "What city is the capital of {c}?", "The capital of {c}?", "{c}: what is the capital?",
    "Which is the capital of {c}?"]
COUNTRY_QUESTIONS = [
    "Which country has {k} as its capital?", "{k} is the capital of which country?",
    "Of which country is {k} the capital?", "What country is {k} the capital of?",
    "{k} is the capital of what country?", "Which country's capital is {k}?"]
CONTINENT_QUESTIONS = [
    "Which continent is {c} in?", "What continent is {c} in?", "On which continent is {c}?",
    "Where is {c}?", "In which continent is {c} located?", "{c} is on which continent?",
    "What is the continent of {c}?"]
GEOGRAPHY = {"cap": CAPITAL_QUESTIONS, "rev": COUNTRY_QUESTIONS, "con": CONTINENT_QUESTIONS}


def capital(d):
    """A capital of a country, a country of a capital, or the continent of a country."""
    kind = d.pick(["cap"] * 5 + ["rev"] * 2 + ["con"] * 2)

    def attempt():
        country, city, continent = d.pick(COUNTRIES)
        templates = GEOGRAPHY[kind]
        i = d.rng.randrange(len(templates))
        key = (kind, country, i)
        if key == ("cap", "Italy", 0):               # the demo's own prompt is never held out
            key = OPEN
        question = cap_first(templates[i].format(c=country, k=city))
        if kind == "cap":
            answer = f"The capital of {country} is **{city}**."
        elif kind == "rev":
            answer = f"{city} is the capital of **{country}**."
        else:
            answer = cap_first(f"{country} is in **{continent}**.")
        return key, (question, answer)

    question, answer = d.redraw(attempt)
    return d.style(question), answer


# --------------------------------------------------------------- sentiment ---

SENTIMENT_QUESTIONS = [
    "Is this review positive or negative? {x}", "Classify the sentiment: {x}",
    "Sentiment: {x}", "What is the sentiment of this review? {x}",
    "Classify the sentiment of this text: {x}", "Positive or negative? {x}",
    "Is this positive, negative or neutral? {x}", "Review: {x} Sentiment?",
    "Label this review as positive, negative or neutral: {x}",
    "Tell me the sentiment: {x}", "What is the sentiment of: {x}",
    'Sentiment of this review: "{x}"', 'Classify the sentiment: "{x}"',
    "Classify this review: {x}", "How does the customer feel? {x}"]
ADJECTIVES = {"positive": POS_ADJ, "negative": NEG_ADJ, "neutral": NEU_ADJ}


def _neutral_reviews(thing, adjective):
    return [f"The {thing} was {adjective}.", f"The {thing} is {adjective}, nothing special.",
            f"It is an {adjective} {thing}." if adjective[0] in "aou" else f"It is a {adjective} {thing}.",
            f"The {thing} was okay, not good and not bad.",
            f"The {thing} arrived on Monday.", f"I used the {thing} yesterday.",
            f"The {thing} is {adjective} for the price.", f"It was an ordinary {thing}.",
            f"I have no strong opinion about the {thing}.", f"The {thing} does what it should."]


def _opinionated_reviews(d, thing, adverb, adjective, positive):
    if positive:
        verb = d.pick(["love", "loved", "really like", "enjoyed", "adore"])
        opposite = d.pick(NEG_ADJ)
        tail = d.pick(["I would buy it again.", "Highly recommended.", "Five stars.", "Best ever.",
                       "I am very happy."])
    else:
        verb = d.pick(["hate", "hated", "regret", "disliked", "cannot stand"])
        opposite = d.pick(POS_ADJ)
        tail = d.pick(["Waste of money.", "I want a refund.", "One star.", "Never again.",
                       "I am very unhappy."])
    return [f"The {thing} was {adverb}{adjective}.", f"I {verb} this {thing}.",
            f"What a {adjective} {thing}!",
            f"The {thing} is {adverb}{adjective}. {tail}", f"{cap_first(adjective)} {thing}. {tail}",
            f"I {verb} the {thing}, it was {adjective}.",
            f"The {thing} was not {opposite} at all." if positive else f"The {thing} was not {opposite}.",
            f"The {thing} was {adjective} and the {d.pick(THINGS)} was {adjective} too.",
            f"This is the {'best' if positive else 'worst'} {thing} I have ever had.",
            f"{tail} The {thing} is {adjective}."]


def sentiment(d):
    """A one-sentence review, labelled positive, negative or neutral."""
    def attempt():
        thing = d.pick(THINGS)
        i = d.rng.randrange(10)
        label = d.pick(["positive", "negative"] * 2 + ["neutral"])
        adjective = d.pick(ADJECTIVES[label])
        adverb = d.pick(["really ", "very ", "so ", "absolutely ", "truly ", "", "", "", "just "])
        if label == "neutral":
            reviews = _neutral_reviews(thing, adjective)
        else:
            reviews = _opinionated_reviews(d, thing, adverb, adjective, label == "positive")
        return ("sent", thing, adjective, i, label), (reviews[i], label)

    review, label = d.redraw(attempt)
    if d.chance(0.15):
        review = review.rstrip(".!")
    return d.style(d.pick(SENTIMENT_QUESTIONS).format(x=review), polite=False), label


# -------------------------------------------------------------- arithmetic ---

PLUS_QUESTIONS = [
    "What is {a} + {b}?", "{a} + {b}", "{a}+{b}", "{a} plus {b}?", "Add {a} and {b}.",
    "How much is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b} = ?", "{a} + {b} =",
    "Calculate {a} + {b}.", "Compute {a}+{b}", "What is the sum of {a} and {b}?"]
MINUS_QUESTIONS = [
    "What is {a} - {b}?", "{a} - {b}", "{a}-{b}", "{a} minus {b}?",
    "Subtract {b} from {a}.", "How much is {a} - {b}?", "What is {a} minus {b}?",
    "{a} - {b} = ?", "{a} - {b} =", "Calculate {a} - {b}.", "Compute {a}-{b}"]


def sum_of_two(d):
    """(a, "+" or "-", b, result) with numbers below 100; one-digit pairs are never held out."""
    def number():
        return d.rng.randint(0, 9) if d.chance(0.4) else d.rng.randint(10, 99)

    def attempt():
        a, b, op = number(), number(), d.pick("++-")
        if op == "-" and b > a and d.chance(0.75):       # few negative results
            a, b = b, a
        return OPEN if max(a, b) < 10 else ("sum", a, op, b), (a, op, b)

    a, op, b = d.redraw(attempt)
    return a, op, b, a + b if op == "+" else a - b


def arithmetic(d):
    a, op, b, result = sum_of_two(d)
    question = d.pick(PLUS_QUESTIONS if op == "+" else MINUS_QUESTIONS).format(a=a, b=b)
    if d.chance(0.4):
        question = d.style(question, polite=False)
    return question, f"{a} {op} {b} = {result}"


# -------------------------------------------------------------- categories ---

TICKETS = {
    "billing": ["I was charged twice for my {p}.", "The invoice for the {p} is wrong.",
                "Why did my card get charged for a {p}?", "My payment for the {p} failed.",
                "The price on my bill for the {p} is too high.", "I need an invoice for my {p}.",
                "You billed me for a {p} I never bought.", "Can I pay for the {p} by card?"],
    "shipping": ["Where is my {p}?", "My {p} has not arrived yet.", "The delivery of my {p} is late.",
                 "When will my {p} be delivered?", "The {p} was sent to the wrong address.",
                 "I want to track my {p}.", "The package with my {p} is lost.",
                 "My {p} should have arrived last week."],
    "technical": ["My {p} does not turn on.", "The {p} stopped working.", "The app for my {p} crashes.",
                  "I get an error when I use the {p}.", "How do I install the {p}?",
                  "The {p} does not connect to the network.", "My {p} freezes all the time.",
                  "The update broke my {p}."],
    "account": ["I forgot my password.", "I cannot log in to buy a {p}.", "How do I change my email?",
                "Please delete my account.", "My account with the {p} order is locked.",
                "I want to update my profile after buying a {p}.",
                "How do I reset my password for the {p} shop?", "I cannot sign in to see my {p}."],
    "returns": ["I want to return my {p}.", "How can I send back the {p}?",
                "I would like a refund for the {p}.", "The {p} is the wrong size, can I exchange it?",
                "Please take back this {p}.", "I want my money back for the {p}.",
                "Can I swap my {p} for another one?",
                "I do not want the {p} anymore, how do I return it?"],
}
TICKET_QUESTIONS = [
    "Categorize this ticket: {t}", "Classify this ticket: {t}", "Classify the support ticket: {t}",
    "Which category? {t}", "Ticket: {t} Category?", "Ticket category: {t}",
    "Categorise this support ticket: {t}", "What category is this ticket? {t}",
    "Classify this ticket as billing, shipping, technical, account or returns: {t}",
    "Route this ticket: {t}"]
PRODUCT_QUESTIONS = [
    "Categorize this product: {x}", "Product category: {x}", "What category is a {x}?",
    "Classify this product: {x}", "Which product category is {x}?", "Categorise the product: {x}"]


def _ticket(d):
    def attempt():
        label = d.pick(list(TICKETS))
        i = d.rng.randrange(8)
        product = d.pick(PRODUCTS)[0]
        text = TICKETS[label][i]
        if "{p}" not in text:
            return OPEN, (text, label)
        return ("ticket", label, i, product), (text.format(p=product), label)

    text, label = d.redraw(attempt)
    if d.chance(0.1):
        text = d.pick(["Hello, ", "Hi, ", "Dear team, "]) + text[:1].lower() + text[1:]
    return d.style(d.pick(TICKET_QUESTIONS).format(t=text), polite=False), label


def _product(d):
    def attempt():
        product, _, category = d.pick(PRODUCTS)
        kind = d.pick(COLOURS + ["new", "old", "big", "small", "cheap", "large", "modern", "used", ""])
        return ("prod", product, kind), ((kind + " " + product).strip(), category)

    product, label = d.redraw(attempt)
    question = d.pick(PRODUCT_QUESTIONS).format(x=product)
    for vowel in "aeio":
        question = question.replace(f" a {vowel}", f" an {vowel}")
    return d.style(question, polite=False), label


def category(d):
    """The department of a support ticket, or the category of a product."""
    return _ticket(d) if d.chance(0.65) else _product(d)
