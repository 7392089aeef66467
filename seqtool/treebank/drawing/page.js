"use strict";
const byId = (id) => document.getElementById(id);
const sections = [...document.querySelectorAll("section")];
const main = document.querySelector("main");
const layout = byId("layout"), query = byId("query"), only = byId("only"), tip = byId("tip");
const PAPER = 700, SHRUNK = 1.6; // pixels across a page, and how much smaller print may be
let printing = false;

// pictures

const states = new Map(); // of each picture: its two forms, its size, and which one is shown
for (const section of sections) {
  for (const picture of section.querySelectorAll(".picture")) {
    const [across, down] = [...picture.querySelectorAll("noscript")].map((each) => each.textContent);
    const { width, across: height, down: column } = picture.dataset;
    states.set(picture, { section, across, down, width: Number(width),
      heights: { across: height, down: column }, rows: null, shown: "", word: 0 });
    picture.replaceChildren();
  }
}

function wanted(state, room) {
  if (printing) return state.width <= PAPER * SHRUNK ? "across" : "down";
  if (layout.value !== "auto") return layout.value;
  return state.width <= room ? "across" : "down";
}

function fill(picture) {
  const state = states.get(picture);
  if (state.shown === state.wanted) return;
  picture.innerHTML = state[state.wanted];
  state.shown = picture.dataset.shown = state.wanted;
  for (const word of state.section.hits || []) {
    const found = wordOf(picture, word);
    if (found) found.classList.add("hit");
  }
}

function empty(picture) {
  picture.replaceChildren();
  states.get(picture).shown = "";
}

const observer = new IntersectionObserver((entries) => {
  if (printing) return;
  for (const { target, isIntersecting } of entries) {
    states.get(target).near = isIntersecting;
    if (isIntersecting) fill(target);
    else if (!target.contains(document.activeElement)) empty(target);
  }
}, { rootMargin: "1200px 0px" });

// all widths are read before anything changes, so that the page is laid out once
function arrange() {
  const whole = main.clientWidth;
  const rooms = [...states.keys()].map((picture) => picture.clientWidth || whole);
  let place = 0;
  for (const [picture, state] of states) {
    const room = rooms[place++];
    state.wanted = wanted(state, room);
    picture.style.minHeight = state.heights[state.wanted] + "px";
    if (state.shown) fill(picture);
  }
}

// words

function rowsOf(picture) {
  const state = states.get(picture);
  if (!state.rows) {
    const lines = picture.closest("figure").querySelector("pre").textContent.split("\n");
    const rows = lines.map((line) => line.split("\t")).filter((row) => /^[0-9]+$/.test(row[0]));
    state.rows = new Map(rows.map((row) => [Number(row[0]), row]));
  }
  return state.rows;
}

function wordOf(picture, word) {
  return picture.querySelector('.word[data-w="' + word + '"]');
}

function unmark() {
  tip.hidden = true;
  for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
}

function add(parent, name, text) {
  const element = document.createElement(name);
  element.textContent = text;
  element.dir = "auto";
  parent.append(element);
}

function look(picture, word) {
  unmark();
  const rows = rowsOf(picture), row = rows.get(word), target = wordOf(picture, word);
  if (!row || !target) return;
  target.classList.add("lit");
  for (const arc of picture.querySelectorAll(
    '[data-w="' + word + '"]:not(.word), [data-h="' + word + '"]')) arc.classList.add("lit");
  tip.replaceChildren();
  add(tip, "b", row[1]);
  const list = document.createElement("dl");
  const head = rows.get(Number(row[6]));
  const told = [["lemma", row[2]], ["tags", [row[3], row[4]].filter((tag) => tag !== "_").join(" ")],
    ["features", row[5].replaceAll("|", " ")],
    ["relation", row[7] + (head ? " of " + head[1] : "")], ["misc", row[9].replaceAll("|", " ")]];
  for (const [name, value] of told) {
    if (value === "_" || !value) continue;
    add(list, "dt", name);
    add(list, "dd", value);
  }
  tip.append(list);
  tip.hidden = false;
  const at = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const under = at.bottom + 8 + own.height < innerHeight;
  const left = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2),
    document.documentElement.clientWidth - own.width - 8);
  tip.style.left = left + "px";
  tip.style.top = (under ? at.bottom + 8 : Math.max(8, at.top - own.height - 8)) + "px";
}

function go(picture, key) {
  const state = states.get(picture), rows = rowsOf(picture);
  const across = state.shown === "across", right = picture.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
  const left = right === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
  const [next, previous, up, inside] = across ? [right, left, "ArrowUp", "ArrowDown"]
    : ["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"];
  let word = state.word || (key === previous ? rows.size + 1 : 0);
  if (key === next) word = Math.min(word + 1, rows.size);
  else if (key === previous) word = Math.max(word - 1, 1);
  else if (key === "Home") word = 1;
  else if (key === "End") word = rows.size;
  else if (key === up) word = Number((rows.get(word) || [])[6]) || word || 1;
  else if (key === inside) {
    const below = [...rows.values()].find((row) => Number(row[6]) === word);
    word = below ? Number(below[0]) : word || 1;
  } else return false;
  state.word = word;
  const target = wordOf(picture, word);
  if (target) target.scrollIntoView({ block: "nearest", inline: "nearest" });
  look(picture, word);
  return true;
}

for (const picture of states.keys()) {
  picture.addEventListener("pointerover", (event) => {
    const word = event.target.closest(".word");
    if (word) look(picture, Number(word.dataset.w));
  });
  picture.addEventListener("pointerleave", unmark);
  picture.addEventListener("click", (event) => {
    const word = event.target.closest(".word");
    if (word) states.get(picture).word = Number(word.dataset.w);
  });
  picture.addEventListener("focus", () => {
    fill(picture);
    if (states.get(picture).word) look(picture, states.get(picture).word);
  });
  picture.addEventListener("blur", unmark);
  picture.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      states.get(picture).word = 0;
      unmark();
    } else if (go(picture, event.key)) event.preventDefault();
  });
}

// search: the language of queries.py, where a space is & too, a text without = is a part of a form
// or lemma, case is no matter, and what is still being typed asks for nothing

const COLUMNS = { id: 0, form: 1, lemma: 2, upos: 3, xpos: 4, tag: 3, feats: 5, features: 5, head: 6,
  deprel: 7, relation: 7, rel: 7, misc: 9 };
const RELATIONS = { // of words a and b, and of the words above each
  ">": (a, b, above) => above(b)[0] === a, ">>": (a, b, above) => above(b).includes(a),
  "<": (a, b, above) => above(a)[0] === b, "<<": (a, b, above) => above(a).includes(b),
  "+": (a, b) => b === a + 1, "-": (a, b) => b === a - 1, "++": (a, b) => b > a, "--": (a, b) => b < a,
};

function wordsAbove(rows, word) {
  const above = []; // a cycle ends
  while ((word = Number(rows.get(word)?.[6])) && !above.includes(word)) above.push(word);
  return above;
}

function escaped(text, isExact) {
  return text.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", isExact ? "\\*" : ".*");
}

function term(text) {
  const [, name = "", isNot, isExact, value] = /^([^=]*?)(!?)=(=(?=.))?(.*)$/.exec(text) || [];
  const [, field, item] = /^([a-z]+)(?:(?:\.|__)(.+))?$/.exec(name.toLowerCase()) || [];
  const column = COLUMNS[field], isList = column === 5 || column === 9;
  if (!Object.hasOwn(COLUMNS, field) || (item && !isList)) {
    const found = new RegExp(escaped(text), "iu");
    return (row) => found.test(row[1]) || found.test(row[2]);
  }
  if (!value) return null;
  const parts = isExact ? [] : value.split("|");
  const texts = [value, ...(parts.every((part) => /[^*]/.test(part)) ? parts : [])];
  const found = new RegExp("^(?:" + texts.map((one) => escaped(one, isExact)).join("|") + ")$", "iu");
  const key = item && new RegExp("^" + escaped(item) + "=", "iu");
  return (row) => {
    let values = isList ? row[column].split("|") : [row[column]];
    if (key) values = values.filter((x) => key.test(x)).map((x) => x.replace(key, ""));
    if (key && !values.length) values = ["_"];
    if (field === "tag") values.push(row[4]);
    if (column === 7 && !isExact) values.push(row[7].split(":")[0]); // found with its subtypes
    return values.some((x) => found.test(x)) !== Boolean(isNot);
  };
}

function related(left, [, isNot, ofTree, ofOrder], right) {
  const tests = [ofTree, ofOrder].filter(Boolean).map((sign) => RELATIONS[sign]);
  return (row, rows) => {
    const word = Number(row[0]), above = (of) => wordsAbove(rows, of);
    const holds = ([other, its]) => tests.every((test) => test(word, other, above)) && right(its, rows);
    return left(row, rows) && [...rows].some(holds) === !isNot;
  };
}

function parsed(text) {
  const RELATION = /\s*(?=!?[<>+-])(!?)(>>?|<<?)?(\+\+?|--?)?(?=\s|$)/y, AND = /\s*&(?=\s|$)/y;
  const OR = /\s*\|(?=\s|$)/y, END = /\s*\)/y, SPACE = /\s*/y, OPENING = /\((?=.)/y;
  let at = 0, depth = 0;
  function take(sign) {
    sign.lastIndex = at;
    const found = sign.exec(text);
    if (found) at = sign.lastIndex;
    return found;
  }
  const isNext = (sign) => { sign.lastIndex = at; return sign.test(text); };
  function query() {
    let test = word(), sign;
    while ((sign = take(RELATION))) {
      const right = word();
      if (test && right) test = related(test, sign, right);
    }
    return test;
  }
  function word() {
    let known = [all()];
    while (take(OR)) known.push(all());
    known = known.filter(Boolean);
    return known.length ? (row, rows) => known.some((test) => test(row, rows)) : null;
  }
  function all() {
    const known = [];
    do {
      take(SPACE);
      const test = at < text.length && item();
      if (test) known.push(test);
      take(AND);
    } while (at < text.length && !isNext(RELATION) && !isNext(OR) && !(depth && isNext(END)));
    return known.length ? (row, rows) => known.every((test) => test(row, rows)) : null;
  }
  function item() {
    if (!take(OPENING)) return term(take(depth ? /\S+?(?=\)*(?:\s|$))/y : /\S+/y)[0]);
    depth += 1;
    const test = query();
    take(END);
    depth -= 1;
    return test;
  }
  return query();
}

function search() {
  const test = parsed(query.value.normalize().trim());
  let num = 0;
  for (const section of sections) {
    const pictures = [...section.querySelectorAll(".picture")];
    const hits = new Set();
    for (const picture of test ? pictures : []) {
      const rows = rowsOf(picture);
      for (const [word, row] of rows) if (test(row, rows)) hits.add(word);
    }
    section.hits = hits;
    const isIn = (!test || hits.size > 0) && (!only.checked || Number(section.dataset.marked) > 0);
    section.hidden = !isIn;
    num += isIn;
    for (const picture of pictures) {
      const { near, shown } = states.get(picture);
      empty(picture);
      // the observer says nothing of one that was out and in again between two of its looks
      if ((near || shown) && isIn) fill(picture);
    }
  }
  const all = sections.length.toLocaleString("en");
  byId("count").textContent = num === sections.length ? all + (num === 1 ? " sentence" : " sentences")
    : num.toLocaleString("en") + " of " + all;
  arrange();
}

let timer = 0;
query.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, 120);
});
only.addEventListener("change", search);
layout.addEventListener("change", arrange);
query.form.addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});

function move(step) {
  const seen = sections.filter((section) => !section.hidden);
  const active = document.activeElement.closest && document.activeElement.closest("section");
  let place = seen.indexOf(active);
  if (place < 0) {
    const below = byId("controls").getBoundingClientRect().bottom;
    place = seen.findIndex((section) => section.getBoundingClientRect().bottom > below + 20);
    if (step > 0) place -= 1;
  }
  const target = seen[Math.min(Math.max(place + step, 0), seen.length - 1)];
  if (!target) return;
  target.scrollIntoView({ block: "start" });
  target.querySelector(".picture").focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const isTyping = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && event.target === query) query.blur();
  if (isTyping) return;
  if (event.key === "/") {
    event.preventDefault();
    query.focus();
    query.select();
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
});

addEventListener("scroll", () => {
  if (!tip.hidden && !document.activeElement.matches(".picture")) unmark();
}, { passive: true });
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) arrange();
  width = innerWidth;
});
addEventListener("beforeprint", () => {
  printing = true;
  unmark();
  arrange();
  for (const [picture, state] of states) {
    picture.style.minHeight = "";
    if (state.section.hidden) continue;
    fill(picture);
    state.section.classList.toggle("long", state.shown === "down");
  }
});
addEventListener("afterprint", () => {
  printing = false;
  arrange();
  for (const [picture, state] of states) {
    empty(picture);
    if (state.near) fill(picture);
  }
});

byId("controls").hidden = false;
const compared = sections.find((section) => section.dataset.marks);
byId("only-marked").hidden = !compared;
if (compared) {
  byId("only-marked").querySelector("span").textContent =
    "only sentences with " + compared.dataset.marks;
}
search();
for (const picture of states.keys()) observer.observe(picture);
