"""Skills whose answer is machine-readable: JSON extraction and SQL.

A skill is a function of a Draw that returns a turn: (user prompt, assistant answer).
"""
import json

from draw import OPEN
from lexicon import CITIES, COLOURS, COUNTRIES, JOBS, NUMWORDS, PRODUCTS

# --------------------------------------------------------- JSON extraction ---


def _quantity(d):
    """(number, how the text spells it)"""
    n = d.rng.randint(2, 12) if d.chance(0.7) else d.rng.randint(13, 99)
    return n, NUMWORDS[n] if n <= 12 and d.chance(0.4) else str(n)


def _statement(d):
    """(key, (sentence, fields)): a sentence and the (name, value) pairs it states, in order."""
    name, city = d.name(), d.city()
    product, products, _ = d.pick(PRODUCTS)
    kind = d.rng.randrange(9)
    if kind == 0:
        text = d.pick(["{n} lives in {c}.", "{n} is from {c}.", "{n} moved to {c}.",
                       "My name is {n} and I live in {c}.", "I am {n} from {c}.",
                       "{n} was born in {c}.", "{n} works in {c}.", "In {c} there lives {n}.",
                       "Hello, I'm {n} and I come from {c}."]).format(n=name, c=city)
        fields, key = [("name", name), ("city", city)], (name, city)
    elif kind == 1:
        age = d.rng.randint(5, 95)
        text = d.pick(["{n} is {a} years old.", "{n} is {a}.", "I am {n}, {a} years old.",
                       "My name is {n} and I am {a} years old.", "{n}, age {a}.",
                       "{n} turned {a} today."]).format(n=name, a=age)
        fields, key = [("name", name), ("age", age)], (name, age)
    elif kind == 2:
        age = d.rng.randint(5, 95)
        text = d.pick(["{n} is {a} years old and lives in {c}.", "{n}, {a}, lives in {c}.",
                       "{n} from {c} is {a} years old.", "{n} ({a}) is from {c}.",
                       "My name is {n}, I am {a} and I live in {c}."]).format(n=name, a=age, c=city)
        fields, key = [("name", name), ("age", age), ("city", city)], (name, city)
    elif kind == 3:
        n, word = _quantity(d)
        text = d.pick(["{n} ordered {w} {p}.", "{n} bought {w} {p}.", "{n} wants {w} {p}.",
                       "{n} needs {w} {p} today.", "Please send {w} {p} to {n}.",
                       "{n} would like {w} {p}."]).format(n=name, w=word, p=products)
        fields, key = [("name", name), ("product", product), ("quantity", n)], (name, product)
    elif kind == 4:
        n, word = _quantity(d)
        text = d.pick(["Please send {w} {p} to {c}.", "Ship {w} {p} to {c}.", "We need {w} {p} in {c}.",
                       "Deliver {w} {p} to {c} tomorrow."]).format(w=word, p=products, c=city)
        fields, key = [("product", product), ("quantity", n), ("city", city)], (product, city)
    elif kind == 5:
        price = d.rng.randint(2, 999)
        text = d.pick(["The {p} costs {x} euros.", "The {p} is {x} dollars.",
                       "I paid {x} euros for the {p}.", "A {p} for {x} dollars.",
                       "The price of the {p} is {x} euros."]).format(p=product, x=price)
        fields, key = [("product", product), ("price", price)], (product, price)
    elif kind == 6:
        job = d.pick(JOBS)
        text = d.pick(["{n} works as a {j} in {c}.", "{n} is a {j} from {c}.",
                       "{n}, a {j}, lives in {c}.", "In {c}, {n} is a {j}."]).format(n=name, j=job, c=city)
        text = text.replace(" a a", " an a").replace(" a e", " an e")
        fields, key = [("name", name), ("job", job), ("city", city)], (name, job)
    elif kind == 7:
        colour = d.pick(COLOURS)
        text = d.pick(["{n} has a {k} {p}.", "{n} bought a {k} {p}.", "{n} sold the {k} {p}.",
                       "The {k} {p} belongs to {n}."]).format(n=name, k=colour, p=product)
        fields, key = [("name", name), ("product", product), ("color", colour)], (name, product)
    else:
        other = d.name()
        text = d.pick(["{a} sent a message to {b}.", "{a} called {b}.", "{a} met {b}.",
                       "{a} wrote to {b}.", "{a} paid {b}."]).format(a=name, b=other)
        fields, key = [("from", name), ("to", other)], (name, other)
    return ("json", kind) + key, (text, fields)


def extraction(d):
    """The fields of a sentence as compact JSON; the prompt may name which ones."""
    text, fields = d.redraw(lambda: _statement(d))
    if len(fields) > 2 and d.chance(0.3):                # only some of the fields are asked for
        fields = sorted(d.rng.sample(fields, 2), key=fields.index)
        named = True
    else:
        named = d.chance(0.5)
    if named:
        names = [name for name, _ in fields]
        wanted = ", ".join(names[:-1]) + " and " + names[-1]
        question = d.pick(["Extract {l} as JSON: {t}", "Extract the {l} as JSON: {t}",
                           "Return JSON with {l}: {t}", "Give me the {l} in JSON: {t}",
                           "Extract {l} from this sentence as JSON: {t}",
                           "JSON with {l} please: {t}", "{t} Extract {l} as JSON."]).format(l=wanted, t=text)
    else:
        question = d.pick(["Extract JSON: {t}", "Extract the data as JSON: {t}", "To JSON: {t}",
                           "Convert to JSON: {t}", "Extract the fields as JSON: {t}", "JSON: {t}",
                           "Turn this into JSON: {t}", "Parse this into JSON: {t}"]).format(t=text)
    if d.chance(0.1):
        question = question.rstrip(".")
    return question, json.dumps(dict(fields), separators=(",", ":"), ensure_ascii=False)


# --------------------------------------------------------------------- SQL ---

# table -> numeric columns (column, comparative for >, for <), text columns, name column
TABLES = {
    "users": ([("age", "older", "younger")], ["city", "country"], "name"),
    "customers": ([("age", "older", "younger")], ["city", "country"], "name"),
    "employees": ([("salary", "", ""), ("age", "older", "younger")], ["department", "city"], "name"),
    "products": ([("price", "more expensive", "cheaper"), ("stock", "", "")], ["category", "color"], "name"),
    "orders": ([("total", "", ""), ("quantity", "", "")], ["status", "city"], "id"),
    "books": ([("price", "more expensive", "cheaper"), ("year", "", "")], ["author"], "title"),
    "movies": ([("rating", "", ""), ("year", "", "")], ["genre"], "title"),
    "cars": ([("price", "more expensive", "cheaper"), ("year", "newer", "older")], ["color"], "model"),
    "students": ([("grade", "", ""), ("age", "older", "younger")], ["city"], "name"),
    "cities": ([("population", "", "")], ["country"], "name"),
    "invoices": ([("amount", "", "")], ["status"], "id"),
    "tickets": ([("priority", "", "")], ["status", "category"], "id"),
}

# column -> a value for it
TEXT_VALUES = {
    "city": lambda d: d.pick(CITIES),
    "country": lambda d: d.pick(COUNTRIES)[0].replace("the ", ""),
    "department": lambda d: d.pick(["sales", "marketing", "finance", "support", "engineering", "legal"]),
    "category": lambda d: d.pick(["electronics", "clothing", "food", "books", "toys", "sports"]),
    "color": lambda d: d.pick(COLOURS),
    "status": lambda d: d.pick(["open", "closed", "shipped", "pending", "paid", "cancelled"]),
    "author": lambda d: d.name(),
    "genre": lambda d: d.pick(["comedy", "drama", "horror", "action", "fantasy"]),
}
NUMBERS = {
    "age": lambda d: d.rng.randint(10, 90), "salary": lambda d: d.rng.randint(10, 99) * 100,
    "price": lambda d: d.pick([d.rng.randint(2, 99), d.rng.randint(1, 50) * 10]),
    "stock": lambda d: d.rng.randint(1, 200), "total": lambda d: d.rng.randint(5, 500),
    "quantity": lambda d: d.rng.randint(1, 50), "year": lambda d: d.rng.randint(1950, 2025),
    "rating": lambda d: d.rng.randint(1, 9), "grade": lambda d: d.rng.randint(1, 10),
    "population": lambda d: d.rng.randint(1, 90) * 1000, "amount": lambda d: d.rng.randint(10, 900),
    "priority": lambda d: d.rng.randint(1, 5),
}
COMPARISONS = {
    ">": ["greater than", "above", "over", "more than", "higher than", ">"],
    "<": ["less than", "below", "under", "lower than", "smaller than", "<"],
    ">=": ["at least", "of at least", ">="], "<=": ["at most", "of at most", "<="],
    "=": ["equal to", "of", "="],
}
AGGREGATES = [("AVG", ["average", "mean"]), ("MAX", ["maximum", "highest", "largest"]),
              ("MIN", ["minimum", "lowest", "smallest"]), ("SUM", ["total", "sum of the"])]


def _number_condition(d, columns):
    column, more, less = d.pick(columns)
    n = NUMBERS[column](d)
    op = d.pick([">", "<", ">", "<", ">=", "<=", "="])
    if op in "<>" and d.chance(0.5) and more:
        english = f"{more if op == '>' else less} than {n}"
    else:
        english = d.pick(["with {c} {w} {n}", "with a {c} {w} {n}", "where {c} is {w} {n}",
                          "whose {c} is {w} {n}"])
        word = d.pick(COMPARISONS[op])
        if word[:2] == "of":
            english = "with {c} {w} {n}"
        elif word[0] in "<>=":
            english = "where {c} {w} {n}"
        english = english.format(c=column, w=word, n=n).replace("with a a", "with an a")
    return english, f"{column} {op} {n}", (column, op, n)


def _text_condition(d, table, columns):
    column = d.pick(columns)
    value = TEXT_VALUES[column](d)
    if column in ("city", "country"):
        lives = "living in {v}" if table not in ("orders", "cities") else "from {v}"
        english = d.pick(["from {v}", "in {v}", lives, "with {c} {v}", "where {c} is {v}"])
    elif column == "author":
        english = d.pick(["by {v}", "written by {v}", "with author {v}"])
    else:
        english = d.pick(["with {c} {v}", "where {c} is {v}", "whose {c} is {v}", "with the {c} {v}"])
    return english.format(c=column, v=value), f"{column} = '{value}'", (column, value)


def _condition(d, table):
    """(English condition, SQL condition, key)"""
    numbers, texts, _ = TABLES[table]
    return _number_condition(d, numbers) if d.chance(0.6) else _text_condition(d, table, texts)


def _query(d):
    """(key, (request in English, SQL)). Two kinds have no slots and are never held out."""
    table = d.pick(list(TABLES))
    numbers, texts, name_column = TABLES[table]
    kind = d.rng.randrange(12)
    show = d.pick(["Show", "List", "Get", "Find", "Give me", "Select", "Show me", "Display"])
    if kind == 0:
        return OPEN, (f"{show} all {table}.", f"SELECT * FROM {table};")
    if kind in (1, 2, 3):
        english, where, key = _condition(d, table)
        request = f"{show} {d.pick(['all ', 'the ', 'all the ', ''])}{table} {english}."
        query = f"SELECT * FROM {table} WHERE {where};"
    elif kind == 4:
        english, where, key = _condition(d, table)
        column = d.pick([name_column, numbers[0][0], texts[0]])
        request = f"{show} the {column} of {d.pick(['all ', 'the ', ''])}{table} {english}."
        query = f"SELECT {column} FROM {table} WHERE {where};"
        key = (column,) + key
    elif kind == 5:
        request = d.pick([f"How many {table} are there?", f"Count the {table}.", f"Count all {table}.",
                          f"What is the number of {table}?"])
        return OPEN, (request, f"SELECT COUNT(*) FROM {table};")
    elif kind == 6:
        english, where, key = _condition(d, table)
        request = d.pick([f"How many {table} are there {english}?", f"Count the {table} {english}.",
                          f"What is the number of {table} {english}?"])
        query = f"SELECT COUNT(*) FROM {table} WHERE {where};"
    elif kind == 7:
        function, words = d.pick(AGGREGATES)
        column = d.pick(numbers)[0]
        request = d.pick(["What is the {w} {c} of {t}?", "Find the {w} {c} of the {t}.",
                          "Show the {w} {c} of all {t}.", "Compute the {w} {c} of {t}."])
        request = request.format(w=d.pick(words), c=column, t=table)
        query = f"SELECT {function}({column}) FROM {table};"
        key = (function, column)
    elif kind == 8:
        column, n = d.pick(numbers)[0], d.rng.randint(2, 20)
        descending = d.chance(0.6)
        if not d.chance(0.6):
            request = f"{show} the {n} {table} with the {'highest' if descending else 'lowest'} {column}."
        elif descending:
            request = f"{show} the {d.pick(['top', 'first'])} {n} {table} by {column}."
        else:
            request = f"{show} the {n} {table} with the lowest {column}."
        query = f"SELECT * FROM {table} ORDER BY {column}{' DESC' if descending else ''} LIMIT {n};"
        key = (column, n, descending)
    elif kind == 9:
        column, descending = d.pick([c[0] for c in numbers] + [name_column]), d.chance(0.4)
        order = d.pick(["sorted by", "ordered by"])
        request = f"{show} all {table} {order} {column}{' descending' if descending else ''}."
        query = f"SELECT * FROM {table} ORDER BY {column}{' DESC' if descending else ''};"
        key = (column, descending)
    elif kind == 10:
        english, where, key = _condition(d, table)
        request = f"{d.pick(['Delete', 'Remove'])} {d.pick(['all ', 'the ', ''])}{table} {english}."
        query = f"DELETE FROM {table} WHERE {where};"
    else:
        column = d.pick(texts)
        request = d.pick(["Count the {t} by {c}.", "How many {t} are there per {c}?", "Count {t} per {c}.",
                          "Number of {t} for each {c}."]).format(t=table, c=column)
        query = f"SELECT {column}, COUNT(*) FROM {table} GROUP BY {column};"
        key = (column,)
    return ("sql", table, kind) + key, (request, query)


def sql(d):
    """One SQL statement over one of twelve known tables, from a request in English."""
    request, query = d.redraw(lambda: _query(d))
    if d.chance(0.35):
        request = d.pick(["Write SQL: ", "SQL: ", "Translate to SQL: ", "Convert to SQL: ",
                          "Write a SQL query: ", "SQL query: "]) + request
    if d.chance(0.35):
        request = request.rstrip(".?")
    return request, query
