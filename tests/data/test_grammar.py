"""The grammar notation and the inside algorithm, against enumeration and hand-made cases."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict

import pytest
from english import PARADIGMS
from grammar import GrammarError, Pcfg
from inside import InsideParser, expected_length, spectral_radius
from notation import GrammarReader

# subcritical, ambiguous, with a chain of unary rules
AMBIGUOUS = """
Text -> S
S -> L = 6
S -> *S S:dep = 1
S -> *S S:dep M:dep = 1
L -> A = 3
L -> B
word A a a X X _
word B b b X X _
word M a a X X _
"""


def read(text: str) -> Pcfg:
    return GrammarReader(PARADIGMS).read(text, "Text")


def all_derivations(grammar: Pcfg, symbol: str, longest: int) -> dict[tuple[str, ...], float]:
    """Probability of every string of at most `longest` words, by expanding the leftmost symbol."""
    mass: dict[tuple[str, ...], float] = defaultdict(float)
    agenda: list[tuple[tuple[str, ...], tuple[str, ...], float]] = [((), (symbol,), 1.0)]
    while agenda:
        words, symbols, probability = agenda.pop()
        if not symbols:
            mass[words] += probability
            continue
        for rule in grammar.rules[symbols[0]]:
            new_words = (*words, rule.word.form) if rule.word else words
            rest = (*(c.symbol for c in rule.children), *symbols[1:])
            if len(new_words) + len(rest) <= longest:
                agenda.append((new_words, rest, probability * rule.probability))
    return mass


def test_inside_is_the_sum_over_enumerated_derivations() -> None:
    grammar = read(AMBIGUOUS)
    parser = InsideParser(grammar)
    expected = all_derivations(grammar, "Text", longest=5)
    for length in range(1, 6):
        for string in itertools.product("ab", repeat=length):
            assert parser.probability(string) == pytest.approx(expected[string], rel=1e-12, abs=0)


def test_probabilities_of_a_finite_language_sum_to_one() -> None:
    grammar = read(
        """
feature N = s p
share number(N): s 3, p 1
Text -> D[N]:det?0.25 *Noun[N] V[N]:dep?0.5 = number(N)
word D[N] the the DET DT _
word D[s] a a DET DT _ 2
word Noun[s] sheep sheep NOUN NN _
word Noun[p] sheep sheep NOUN NNS _
word V[s] sleeps sleep VERB V _
word V[p] sleep sleep VERB V _
"""
    )
    strings = all_derivations(grammar, "Text", longest=3)
    assert math.fsum(strings.values()) == pytest.approx(1.0, abs=1e-14)
    parser = InsideParser(grammar)
    for string, probability in strings.items():
        assert parser.probability(string) == pytest.approx(probability, rel=1e-13)
    # "the sheep": singular 3/4 * 1/4 * 1/2 * 1/3, plural 1/4 * 1/4 * 1/2
    assert parser.probability(["the", "sheep"]) == pytest.approx(1 / 32 + 1 / 32, rel=1e-13)
    assert parser.probability(["a", "sheep", "sleep"]) == 0.0
    assert parser.probability([]) == 0.0
    assert parser.probability(["wolf"]) == 0.0


def test_folded_spellings_share_their_probability() -> None:
    grammar = read("word Text It it PRON P _ 1\nword Text it it PRON P _ 3\n")
    assert InsideParser(grammar).probability(["it"]) == 0.75
    assert InsideParser(grammar, str.lower).probability(["it"]) == 1.0


def test_expected_length_and_growth_of_a_known_grammar() -> None:
    # S -> S S with 1/4, else a word: mean length m = 3/4 + 2m/4, so m = 3/2; growth 2/4
    grammar = read("Text -> *Text Text:dep = 1\nword Text a a X X _ 3\n")
    assert expected_length(grammar) == pytest.approx(1.5, abs=1e-9)
    assert spectral_radius(grammar) == pytest.approx(0.5, abs=1e-9)
    critical = read("Text -> *Text Text:dep\nword Text a a X X _ 1\n")
    assert spectral_radius(critical) == pytest.approx(1.0, abs=1e-9)


def test_heads_may_lie_in_a_sibling_and_be_lifted() -> None:
    grammar = read(
        """
Text -> O:obj@ccomp ^Rest Inner:ccomp *V
Rest -> N:nsubj
Inner -> *V
word O it it PRON P _
word N she she PRON P _
word V said say VERB V _
"""
    )
    tree = grammar.sample(random.Random(0))
    assert [w.form for w in tree.words] == ["it", "she", "said", "said"]
    assert tree.heads == [2, 3, 3, -1]
    assert tree.relations == ["obj", "nsubj", "ccomp", "root"]
    assert tree.crossing()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Text -> A\nword A a a X X _\nText -> B", "no sentence can use|no rule that ends"),
        ("Text -> A B\nword A a a X X _\nword B b b X X _", "needs one of"),
        ("Text -> *A *B\nword A a a X X _\nword B b b X X _", "two heads"),
        ("Text -> *A ^B\nword A a a X X _\nword B b b X X _", "headless"),
        ("Text -> A = missing(A)\nword A a a X X _", "line 1"),
        ("nonsense", "neither a rule"),
        ("feature C = x\ntable t(C): x 1, x 2\nword Text a a X X _", "given twice"),
        ("feature C = x\ntable t(C): y 1\nword Text a a X X _", "no value"),
    ],
)
def test_a_faulty_grammar_is_refused(text: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        read(text)


def test_a_cycle_of_unary_rules_is_refused() -> None:
    grammar = read("Text -> A = 1\nA -> Text\nword A a a X X _ 1\n")
    with pytest.raises(GrammarError, match="cycle"):
        InsideParser(grammar)
