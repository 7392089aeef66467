"""The page of trees in a browser: what is drawn when, search, keys, right to left, print."""

from __future__ import annotations

from pathlib import Path

from browser import browser
from toy_trees import GOLD, TREES, render, sentence

from seqtool.treebank.conllu import read_conllu

COUNT = 'document.getElementById("count").textContent'
SEARCH = 'query.value = "{}"; search(); ' + COUNT
DRAWN = (
    '[...document.querySelectorAll(".picture")].map((p) => p.querySelectorAll("svg, table").length)'
)
SHOWN = '[...document.querySelectorAll(".picture")].map((p) => p.dataset.shown)'


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    small, many = tmp_path / "small.html", tmp_path / "many.html"
    pieces = render(read_conllu(TREES), "html", gold=read_conllu(GOLD))
    small.write_text("".join(pieces), encoding="utf-8")
    long = sentence([0, *range(1, 77)])
    pieces = render([long, *(sentence([2, 0, 2]) for _ in range(60)), long], "html")
    many.write_text("".join(pieces), encoding="utf-8")
    with browser(tmp_path) as page:
        page.open(small, 1000, 800)
        assert page.run(COUNT) == "4 sentences"
        # (typed, found): a relation with its subtypes, a part of a word, all of one word
        for typed, found in (
            ("deprel=acl", "1 of 4"),
            ("bark", "2 of 4"),
            ("form=bark", "0 of 4"),
            ("form=bark* deprel=root", "1 of 4"),
            ("UPOS=noun 비", "1 of 4"),
            ("tag=vbd", "2 of 4"),
            ("tag=verb", "4 sentences"),
            ("feats.Case=Acc", "1 of 4"),
            ("deprel=", "4 sentences"),  # more is being typed
            ("", "4 sentences"),
        ):
            assert page.run(SEARCH.format(typed)) == found, typed
        page.run("only.click()")
        assert page.run(COUNT) == "2 of 4"
        page.run("only.click(); " + SEARCH.format("form=us"))
        page.until("document.querySelector('.hit .form') !== null")
        assert page.run('document.querySelector(".hit .form").textContent') == "us"
        page.run(SEARCH.format(""))
        page.until(f"{DRAWN}[0] === 1")

        # first sentence, second word "dog", its head, and its first dependent
        page.press("j", "ArrowRight", "ArrowRight")
        tip = 'tip.querySelector("b").textContent'
        assert page.run(tip) == "dog"
        page.press("ArrowUp")
        assert page.run(tip) == "barked"
        page.press("ArrowDown")
        assert page.run(tip) == "dog"
        page.press("Escape")
        assert page.run("tip.hidden")
        # in the last one, the next word is at the left
        page.press("j", "j", "j", "ArrowLeft", "ArrowLeft")
        assert page.run(tip) == "نبح"
        page.press("/")
        assert page.run("document.activeElement.id") == "query"

        # a picture that is wider than its window begins where its reader does
        page.open(small, 120, 800)
        page.run('layout.value = "across"; arrange()')
        last = '[...document.querySelectorAll(".picture")].pop()'
        assert page.run(f"{last}.scrollWidth > {last}.clientWidth && {last}.scrollLeft === 0")
        edge = f'{last}.querySelector("svg").getBoundingClientRect().right'
        assert abs(page.run(f"{edge} - {last}.getBoundingClientRect().right")) < 1

        page.open(many, 1000, 800)
        page.until(f"{DRAWN}[0] === 1")
        drawn = page.run(DRAWN)
        assert drawn[0] == 1
        assert sum(drawn) < 10
        assert page.run(SHOWN)[0] == "down"  # as it does not fit across
        page.run("scrollTo(0, document.body.scrollHeight)")
        page.until(f"{DRAWN}.at(-1) === 1 && {DRAWN}[5] === 0")
        page.run("dispatchEvent(new Event('beforeprint'))")
        drawn = page.run(DRAWN)
        assert set(drawn) == {1}
        assert page.run(SHOWN)[0] == "down"  # as paper is narrower still
        page.run("dispatchEvent(new Event('afterprint'))")
        assert sum(page.run(DRAWN)) < 10
        assert page.complaints == []
