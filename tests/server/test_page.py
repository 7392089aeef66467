"""The page of a server, without a script and in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest
from browser import browser
from server.running import PIPELINE, Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(PIPELINE) as found:
        yield found


def test_the_form_works_without_a_script(server: Running) -> None:
    empty = httpx.get(f"{server.url}/").text
    assert "<section" not in empty
    assert 'method="post"' in empty
    text = 'The dog <b>"sees"</b> it.\n\n</textarea>'
    for response in (
        httpx.post(f"{server.url}/", data={"data": text}),
        httpx.get(f"{server.url}/", params={"data": text}),
    ):
        assert response.status_code == 200
        typed = response.text.partition("<textarea")[2].partition(">\n")[2]
        assert unescape(typed.partition("</textarea>")[0]) == text
        assert response.text.count("<section") >= 1
        assert "<b>" not in response.text.partition("<main")[2]


def test_what_is_wrong_is_told_on_the_page(server: Running) -> None:
    for fields, status, told in (
        ({"data": "x", "model": "<i>"}, 400, "no model is called &#x27;&lt;i&gt;&#x27;"),
        ({"data": "a\n\n" * 201}, 413, "the text has more than 200 sentences"),
    ):
        response = httpx.post(f"{server.url}/", data=fields)
        assert response.status_code == status
        assert f'role="alert">{told}' in response.text
        assert "<section" not in response.text


def test_a_parser_alone_has_no_page_of_trees() -> None:
    with running(PIPELINE / "parser") as server:
        response = httpx.post(f"{server.url}/", data={"data": "x"})
    assert (response.status_code, "no model here splits" in response.text) == (400, True)


def test_the_page_in_a_browser(server: Running, tmp_path: Path) -> None:
    with browser(tmp_path) as page:
        page.open(f"{server.url}/", 900, 600)
        assert page.run("document.activeElement.id") == "text"
        assert page.run('byId("controls").hidden')
        # Enter that ends a syllable does not send it, and Shift begins a line
        page.call("Input.insertText", text="The dog sees a cat .")
        page.run(
            "for (const more of [{ isComposing: true }, { shiftKey: true }]) text.dispatchEvent("
            'new KeyboardEvent("keydown", { key: "Enter", cancelable: true, ...more }))'
        )
        assert page.run("location.search") == ""
        page.press("Enter")
        page.until(
            'document.readyState === "complete" && location.search.startsWith("?data=The+dog") && '
            'document.querySelectorAll(".picture svg").length === 1'
        )
        assert page.run("document.title") == "The dog sees a cat . · Dependency trees"
        assert page.run("text.value") == "The dog sees a cat ."
        words = '[...document.querySelectorAll(".word .form")].map((word) => word.textContent)'
        assert page.run(f"{words}.join(' ')") == "The dog sees a cat ."
        # keys of the page of trees do nothing where one types, and go along the words elsewhere
        page.run("text.focus()")
        page.press("j")
        assert page.run("document.activeElement.id") == "text"
        page.run("text.blur()")
        page.press("j", "ArrowRight")
        assert page.run('tip.querySelector("b").textContent') == "The"

        # a long text goes with the request, not into the address; and from right to left
        page.run('text.value = "نبح الكلب.\\n\\n".repeat(130); typed.requestSubmit()')
        page.until('document.readyState === "complete" && location.search === ""')
        page.until('document.querySelector(".picture svg") !== null')
        assert page.run('document.querySelector(".picture").dir') == "rtl"
        assert page.run("getComputedStyle(text).direction") == "rtl"
        assert page.complaints == []
