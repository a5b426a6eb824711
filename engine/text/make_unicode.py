#!/usr/bin/env python3
"""Writes unicode_tables.h: the character classes of the pre-tokenizer's pattern.

    python3 make_unicode.py [DIR] > unicode_tables.h

DIR holds the Unicode Character Database and defaults to /usr/share/unicode,
where Debian's package unicode-data puts it. The result is committed, so that
token ids are the same whatever version of anything a machine has installed; it
is regenerated only to move to another Unicode version on purpose.

A class is a set of bits. The table has two stages: the first gives the number of
a block for code point / 256, the second the class of each code point of a block;
blocks with equal contents stand once.
"""
import os
import re
import sys

LAST = 0x10FFFF
BLOCK = 256
PER_LINE = 32

# tiktoken's regular expressions know Unicode 16.0.0 (regex-syntax 0.8.5), and
# Debian 12 has the data of 15.0.0. Between the two no code point of any class
# changed; these were added. From data of 16.0.0 the same table comes out.
WANTED = "16.0.0"
ADDED_SINCE = "15.0.0"
ADDED = {
    "Lu": """
        1C89 A7CB-A7CC A7DA A7DC 10D50-10D65""",
    "Ll": """
        1C8A A7CD A7DB 10D70-10D85""",
    "Lm": """
        10D4E 10D6F 16D40-16D42 16D6B-16D6C""",
    "Lo": """
        105C0-105F3 10D4A-10D4D 10D4F 10EC2-10EC4 11380-11389 1138B 1138E 11390-113B5 113B7
        113D1 113D3 11BC0-11BE0 13460-143FA 16100-1611D 16D43-16D6A 18CFF 1E5D0-1E5ED 1E5F0""",
    "Lo Han": """
        2EBF0-2EE5D""",
    "Mn": """
        897 10D69-10D6D 10EFC 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11F5A 1611E-16129
        1612D-1612F 1E5EE-1E5EF""",
    "Mc": """
        113B8-113BA 113C2 113C5 113C7-113CA 113CC-113CD 113CF 1612A-1612C""",
    "Nd": """
        10D40-10D49 116D0-116E3 11BF0-11BF9 16130-16139 16D70-16D79 1CCF0-1CCF9 1E5F1-1E5FA""",
}

# As waste_pretok_class in pretok.h, which says what each stands for.
HAN, LETTER, NUMBER, UPPER, LOWER, SPACE, BREAK = (1 << i for i in range(7))


def categories(path):
    """General category of every code point; unlisted ones are Cn."""
    out = ["Cn"] * (LAST + 1)
    first = None
    with open(path, encoding="ascii") as f:
        for line in f:
            code, name, category = line.split(";")[:3]
            code = int(code, 16)
            if name.endswith(", First>"):
                first = code
                continue
            start = code if first is None else first
            first = None
            out[start:code + 1] = [category] * (code + 1 - start)
    return out


def members(path, value):
    """Code points that a file of `range ; value` lines gives this value."""
    with open(path, encoding="utf-8") as f:
        for line in f:
            m = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*(\w+)", line)
            if m and m.group(3) == value:
                yield from range(int(m.group(1), 16), int(m.group(2) or m.group(1), 16) + 1)


def version(path):
    with open(path, encoding="utf-8") as f:
        m = re.match(r"# \w+-(\d+\.\d+\.\d+)\.txt", f.readline())
    if not m:
        sys.exit(f"{path}: the first line does not state the Unicode version")
    return m.group(1)


def class_of(code, category, han, space):
    bits = 0
    if category[0] == "L":
        bits |= LETTER
    if category[0] == "N":
        bits |= NUMBER
    if not han and category in ("Lu", "Lt", "Lm", "Lo", "Mn", "Mc", "Me"):
        bits |= UPPER
    if not han and category in ("Ll", "Lm", "Lo", "Mn", "Mc", "Me"):
        bits |= LOWER
    if han:
        bits |= HAN
    if space:
        bits |= SPACE
    if code in (10, 13):
        bits |= BREAK
    return bits


def classes(folder):
    category = categories(os.path.join(folder, "UnicodeData.txt"))
    han = set(members(os.path.join(folder, "Scripts.txt"), "Han"))
    space = set(members(os.path.join(folder, "PropList.txt"), "White_Space"))
    if version(os.path.join(folder, "Scripts.txt")) == ADDED_SINCE:
        for kind, ranges in ADDED.items():
            for r in ranges.split():
                first, _, last = r.partition("-")
                for code in range(int(first, 16), int(last or first, 16) + 1):
                    assert category[code] == "Cn"
                    category[code] = kind[:2]
                    if kind == "Lo Han":
                        han.add(code)
    return bytes(class_of(c, category[c], c in han, c in space) for c in range(LAST + 1))


def array(declaration, values):
    lines = [",".join(str(v) for v in values[i:i + PER_LINE]) for i in range(0, len(values), PER_LINE)]
    return f"{declaration} = {{\n    " + ",\n    ".join(lines) + "};\n"


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode"
    v = version(os.path.join(folder, "Scripts.txt"))
    if v not in (WANTED, ADDED_SINCE):
        sys.exit(f"{folder} has Unicode {v}; wanted {WANTED} or {ADDED_SINCE}")
    table = classes(folder)
    blocks, index = {}, []
    for i in range(0, LAST + 1, BLOCK):
        index.append(blocks.setdefault(table[i:i + BLOCK], len(blocks)))
    if len(blocks) > 256:
        sys.exit(f"{len(blocks)} different blocks do not fit a byte")

    out = [f"/* Character classes of Unicode {WANTED}, made by make_unicode.py; not to be edited.\n"
           f" * For pretok.c alone: class = block[index[c / {BLOCK}]][c % {BLOCK}],\n"
           " * bits of waste_pretok_class. */\n",
           "#ifndef WASTE_UNICODE_TABLES_H\n#define WASTE_UNICODE_TABLES_H\n\n",
           "/* clang-format off */\n"]
    out.append(array(f"static const unsigned char unicode_index[{len(index)}]", index))
    out.append("\n")
    out.append(f"static const unsigned char unicode_block[{len(blocks)}][{BLOCK}] = {{\n")
    for block in blocks:
        lines = [",".join(map(str, block[i:i + PER_LINE])) for i in range(0, BLOCK, PER_LINE)]
        out.append("    {" + ",\n     ".join(lines) + "},\n")
    out.append("};\n/* clang-format on */\n\n#endif\n")
    sys.stdout.write("".join(out))


if __name__ == "__main__":
    main()
