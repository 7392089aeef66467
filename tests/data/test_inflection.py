"""English and Korean inflection, against forms from any grammar book."""

from __future__ import annotations

import english
import korean
import pytest


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("dog", "dogs"),
        ("bus", "buses"),
        ("church", "churches"),
        ("story", "stories"),
        ("boy", "boys"),
    ],
)
def test_english_plural(singular: str, plural: str) -> None:
    assert english.plural(singular) == plural


@pytest.mark.parametrize(
    ("verb", "past", "gerund"),
    [
        ("walk", "walked", "walking"),
        ("stop", "stopped", "stopping"),
        ("bake", "baked", "baking"),
        ("cry", "cried", "crying"),
        ("play", "played", "playing"),
        ("visit", "visited", "visiting"),
        ("fix", "fixed", "fixing"),
        ("clean", "cleaned", "cleaning"),
        ("tie", "tied", "tying"),
    ],
)
def test_english_verbs(verb: str, past: str, gerund: str) -> None:
    assert (english.past(verb), english.gerund(verb)) == (past, gerund)


@pytest.mark.parametrize(
    ("word", "sound"),
    [
        ("old", "v"),
        ("young", "k"),
        ("honest", "v"),
        ("unusual", "v"),
        ("useful", "k"),
        ("umbrella", "v"),
        ("hat", "k"),
    ],
)
def test_sound_that_decides_between_a_and_an(word: str, sound: str) -> None:
    assert english.initial_sound(word) == sound


def forms(paradigm: str, entry: str) -> dict[str, str]:
    return {symbol: word.form for symbol, word in korean.PARADIGMS[paradigm]("x", entry)}


@pytest.mark.parametrize(
    ("entry", "past", "present", "adnominal", "condition", "reason"),
    [
        ("먹다", "먹었다", "먹는다", "먹은", "먹으면", "먹어서"),
        ("가다", "갔다", "간다", "간", "가면", "가서"),
        ("오다", "왔다", "온다", "온", "오면", "와서"),
        ("마시다", "마셨다", "마신다", "마신", "마시면", "마셔서"),
        ("배우다", "배웠다", "배운다", "배운", "배우면", "배워서"),
        ("보내다", "보냈다", "보낸다", "보낸", "보내면", "보내서"),
        ("쓰다", "썼다", "쓴다", "쓴", "쓰면", "써서"),
        ("만들다", "만들었다", "만든다", "만든", "만들면", "만들어서"),
        ("살다", "살았다", "산다", "산", "살면", "살아서"),
        ("쉬다", "쉬었다", "쉰다", "쉰", "쉬면", "쉬어서"),
        ("걷다/ㄷ", "걸었다", "걷는다", "걸은", "걸으면", "걸어서"),
        ("돕다/ㅂ", "도왔다", "돕는다", "도운", "도우면", "도와서"),
        ("부르다/르", "불렀다", "부른다", "부른", "부르면", "불러서"),
        ("좋아하다", "좋아했다", "좋아한다", "좋아한", "좋아하면", "좋아해서"),
        ("시작되다", "시작됐다", "시작된다", "시작된", "시작되면", "시작돼서"),
    ],
)
def test_korean_verbs(
    entry: str, past: str, present: str, adnominal: str, condition: str, reason: str
) -> None:
    found = forms("verb", entry)
    endings = ["past", "pres", "adnpast", "if", "because"]
    assert [found[f"V[x,{e},p]"] for e in endings] == [past, present, adnominal, condition, reason]


def test_korean_honorifics_and_questions() -> None:
    go, eat, live = forms("verb", "가다"), forms("verb", "먹다+드시다"), forms("verb", "살다")
    assert (go["V[x,past,h]"], go["V[x,pres,h]"]) == ("가셨다", "가신다")
    assert (eat["V[x,past,h]"], eat["V[x,adnpast,h]"]) == ("드셨다", "드신")
    assert (live["V[x,past,h]"], live["V[x,asknow,p]"]) == ("사셨다", "사니")
    assert go["V[x,ask,p]"] == "갔니"


def test_korean_adjectives_and_existence() -> None:
    cute, big, there = (
        forms("adjective", "귀엽다/ㅂ"),
        forms("adjective", "크다"),
        forms("existence", "있다"),
    )
    assert (cute["A[x,past,p]"], cute["A[x,adnpres,p]"]) == ("귀여웠다", "귀여운")
    assert (big["A[x,past,p]"], big["A[x,pres,p]"], big["A[x,adnpres,p]"]) == ("컸다", "크다", "큰")
    assert forms("adjective", "바쁘다")["A[x,past,p]"] == "바빴다"
    assert forms("adjective", "맛있다")["A[x,adnpres,p]"] == "맛있는"
    assert (there["V[x,pres,p]"], there["V[x,adnpres,p]"], there["V[x,adnpast,p]"]) == (
        "있다",
        "있는",
        "있던",
    )


@pytest.mark.parametrize(
    ("noun", "nominative", "topic", "accusative", "instrument", "copula"),
    [
        ("책", "책이", "책은", "책을", "책으로", "책이다"),
        ("사과", "사과가", "사과는", "사과를", "사과로", "사과다"),
        ("물", "물이", "물은", "물을", "물로", "물이다"),
    ],
)
def test_korean_particles(
    noun: str, nominative: str, topic: str, accusative: str, instrument: str, copula: str
) -> None:
    found = forms("noun", noun)
    cases = ["nom", "top", "acc", "ins", "is"]
    expected = [nominative, topic, accusative, instrument, copula]
    assert [found[f"N[x,{case}]"] for case in cases] == expected


def test_respectful_particles() -> None:
    found = {s: w.form for s, w in korean.PARADIGMS["noun"]("elder", "할머니")}
    assert found["N[elder,nom]"] == "할머니께서"
    assert found["N[elder,dat]"] == "할머니께"
