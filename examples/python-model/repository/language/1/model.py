"""Guesses the language of a text from its letter pairs, in numpy.

A text's profile is the vector of counts of its letter pairs, hashed into 4096 cells and scaled to length 1; the score of a language
is the cosine with the profile of a short sample of it (after Cavnar & Trenkle 1994, "N-gram-based text categorization").
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

CELLS = 4096
# Article 1 of the Universal Declaration of Human Rights, and one sentence of everyday words.
SAMPLES = {
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen. Das Haus steht an der Straße, und die Kinder gehen mit dem Hund auf den Markt, wenn es nicht regnet.",
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood. The house stands on the street, and the children go to the market with the dog when it does not rain.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y conciencia, deben comportarse fraternalmente los unos con los otros. La casa está en la calle y los niños van al mercado con el perro cuando no llueve.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité. La maison est dans la rue et les enfants vont au marché avec le chien quand il ne pleut pas.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione e di coscienza e devono agire gli uni verso gli altri in spirito di fratellanza. La casa è sulla strada e i bambini vanno al mercato con il cane quando non piove.",
}


class Model:
    """``text`` BYTES [rows, 1] → ``language`` BYTES [rows, 1] and ``score`` FP32 [rows, 5], languages in alphabetical order."""

    def __init__(self, config: dict[str, Any]) -> None:
        del config  # nothing to set
        self.names = np.array([name.encode() for name in SAMPLES], dtype=object)
        self.profiles = profiles(list(SAMPLES.values()))

    def predict(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """One call for the whole batch."""
        texts = [bytes(text).decode("utf-8", errors="replace") for text in inputs["text"][:, 0]]
        score = profiles(texts) @ self.profiles.T
        return {"language": self.names[score.argmax(axis=1)][:, None], "score": score}


def profiles(texts: list[str]) -> npt.NDArray[np.float32]:
    """Unit vectors of hashed letter pairs, [texts, 4096]."""
    out = np.zeros((len(texts), CELLS), np.float32)
    for row, text in enumerate(texts):
        letters = "".join(c if c.isalpha() else " " for c in unicodedata.normalize("NFC", f" {text.lower()} "))
        codes = np.array([ord(c) for c in " ".join(letters.split())], np.uint32)
        if len(codes) > 1:
            np.add.at(out[row], (codes[:-1] * 31 + codes[1:]) % CELLS, 1.0)
    return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-9)
