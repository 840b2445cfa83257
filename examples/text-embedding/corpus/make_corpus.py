"""Make sentences.txt from WordNet 3.0: usage examples and noun definitions, chosen by hash, so that every run gives the same file.

apt-get install wordnet-base      # Debian; the database is /usr/share/wordnet/data.*
python make_corpus.py [FOLDER]
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TARGET = Path(__file__).with_name("sentences.txt")
EXAMPLES, DEFINITIONS = 2000, 2000
WORDS_MIN, WORDS_MAX = 3, 60
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
UNWANTED = re.compile(r"offensive|obscen|vulgar|disparag|derogat|slang|ethnic|sexual|rape|suicid", re.IGNORECASE)


def entries(folder: Path, part: str) -> Iterator[tuple[str, str]]:
    """(first word, gloss) of every synset; the layout is that of wndb(5WN)."""
    for line in (folder / f"data.{part}").read_text(encoding="ascii").splitlines():
        if not line.startswith("  "):  # the licence comes first, indented
            head, _, gloss = line.partition(" | ")
            yield head.split()[4].replace("_", " "), gloss.strip()


def usage_examples(folder: Path) -> Iterator[str]:
    """Quoted sentences that begin with a capital letter."""
    for part in PARTS_OF_SPEECH:
        for _, gloss in entries(folder, part):
            for quoted in re.findall(r'"([^"]+)"', gloss):
                if quoted[0].isupper():
                    yield quoted.strip()


def definitions(folder: Path) -> Iterator[str]:
    """``word: definition`` of common nouns."""
    for word, gloss in entries(folder, "noun"):
        if word.isalpha() and word.islower():
            definition = gloss.split('; "')[0].strip()
            yield f"{word}: {definition}"


def chosen(lines: Iterable[str], count: int) -> list[str]:
    """``count`` of the usable lines in an order that depends on their text alone."""
    usable = {line for line in lines if WORDS_MIN <= len(line.split()) <= WORDS_MAX and not UNWANTED.search(line)}
    return sorted(usable, key=lambda line: hashlib.sha256(line.encode()).digest())[:count]


def main() -> None:
    """Command line."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/wordnet")
    lines = chosen(usage_examples(folder), EXAMPLES) + chosen(definitions(folder), DEFINITIONS)
    TARGET.write_text("\n".join(chosen(lines, len(lines))) + "\n", encoding="utf-8")
    print(f"{TARGET.name}: {len(lines)} lines, {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
