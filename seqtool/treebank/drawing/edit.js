// correcting heads and relations, where each sentence has one analysis

if (states.size === sections.length) {
  const bar = byId("edit"), heads = byId("head"), relation = byId("relation");
  const past = []; // what each change took the place of
  let picked = null, pointing = false, saved = true; // picked: { picture, word, row }

  // numbers as Python's `:g` writes them
  function set(element, values) {
    for (const [name, value] of Object.entries(values)) element.setAttribute(name,
      String(value).replace(/[\d.]+(e-?\d+)?/g, (number) => Number(Number(number).toPrecision(6))));
  }

  // draws arcs as picture.py does, in its units; words stay where they are
  function draw(html, arcs, isDown, isLeftward) {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    const svg = holder.content.firstElementChild;
    const at = (element, name) => Number(element.getAttribute(name));
    const rings = [...svg.querySelectorAll(".ring")];
    const centres = [0, ...rings.map((ring) => at(ring, "x") + at(ring, "width") / 2)];
    const over = centres.map(() => 0), meeting = centres.map(() => []);
    for (const arc of [...arcs].sort((a, b) => a.length - b.length)) {
      if (!arc.head) continue;
      arc.level = 1 + Math.max(...over.slice(arc.first, arc.last));
      over.fill(arc.level, arc.first, arc.last);
    }
    arcs.forEach((arc, i) => {
      if (!arc.head) return meeting[arc.word].push([0, i]);
      meeting[arc.first].push([1 / arc.length, i]);
      meeting[arc.last].push([-1 / arc.length, i]);
    });
    for (const ends of meeting) ends.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const top = Math.max(...over), step = isDown ? 12 : 24, slot = isLeftward && !isDown ? -7 : 7;
    const place = (word, i) => centres[word] + slot
      * (meeting[word].findIndex((end) => end[1] === i) - (meeting[word].length - 1) / 2);
    const groups = svg.querySelectorAll("[data-h]:not(.gold)");
    const labels = svg.querySelectorAll(".relation:not(.gold)");
    const base = Number(/ (\S+)l/.exec(groups[0].querySelector(".arrow").getAttribute("d"))[1]);
    arcs.forEach((arc, i) => {
      const group = groups[i], label = labels[i];
      const x = place(arc.word, i), start = arc.head ? place(arc.head, i) : x;
      const far = base - (arc.head ? step * arc.level + 4 : step * top + 18), turn = far + 8;
      const bend = start < x ? 8 : -8;
      const line = arc.head ? `M${start} ${base}V${turn}Q${start} ${far} ${start + bend} ${far}`
        + `H${x - bend}Q${x} ${far} ${x} ${turn}` : `M${x} ${far}`;
      for (const { classList } of arc.kind ? [group, label] : []) {
        classList.remove("wrong");
        classList.add(arc.kind);
      }
      group.dataset.h = arc.head;
      set(group.querySelector(".arc"), { d: `${line}V${base - 5}` });
      set(group.querySelector(".arrow"), { d: `M${x} ${base}l3.5 -8h-7z` });
      label.textContent = arc.relation;
      if (isDown) return;
      const width = 7.2 * arc.relation.length;
      const middle = Math.max(width / 2, Math.min((start + x) / 2, at(svg, "width") - width / 2));
      set(label, { x: middle, y: far - 4 });
      set(label.previousElementSibling, { x: middle - width / 2, y: far - 13, width });
    });
    // higher arcs need more room, at the top or where words below one another begin
    const extra = Math.max(0, 34 + step * top - base);
    const width = at(svg, "width") + (isDown && extra), height = at(svg, "height") + (!isDown && extra);
    const corner = isDown ? `${isLeftward ? 0 : -extra} 0` : `0 ${-extra}`;
    set(svg, { width, height, viewBox: `${corner} ${width} ${height}` });
    return [svg.outerHTML, height];
  }

  // what keeps heads from being a tree, and the words that are to blame
  function faultOf(rows) {
    const up = (word) => Number(rows.get(word)[6]);
    for (let word of rows.keys()) {
      for (let steps = rows.size; steps && word; steps--) word = up(word);
      const cycle = new Set();
      for (; word && !cycle.has(word); word = up(word)) cycle.add(word);
      if (word) return ["a cycle", cycle];
    }
    const roots = [...rows.keys()].filter((word) => !up(word));
    return roots.length > 1 ? [`${roots.length} roots`, new Set(roots)] : ["", new Set()];
  }

  function changed(state) {
    const isOther = ([word, row]) => [6, 7].some((i) => row[i] !== state.given.rows.get(word)[i]);
    return new Map([...state.rows].filter(isOther).map(([word, row]) => [String(word), row]));
  }

  // CoNLL-U with what was changed; scores of another tree go
  function correct(state, text) {
    const rows = state.given ? changed(state) : new Map();
    if (!rows.size) return text;
    return text.split("\n").filter((line) => !/^#\s*parse_(rank|score)\s*=/.test(line)).map((line) => {
      const columns = line.split("\t"), row = rows.get(columns[0]);
      if (!row) return line;
      const misc = columns[9].split("|").filter((item) => !item.startsWith("Score=")).join("|");
      return [...columns.slice(0, 6), row[6], row[7], columns[8], misc || "_"].join("\t");
    }).join("\n");
  }

  function update(picture, word, head, name) {
    const rows = rowsOf(picture), state = states.get(picture), row = rows.get(word);
    const pre = picture.closest("figure").querySelector("pre");
    state.given ||= { across: state.across, down: state.down,
      rows: new Map([...rows].map(([number, own]) => [number, [...own]])), text: pre.textContent };
    [row[6], row[7]] = [String(head), name];
    const edits = changed(state), [fault, blamed] = faultOf(rows);
    const arcs = [...rows.values()].map((own) => {
      const [dependent, above] = [Number(own[0]), Number(own[6])];
      const kind = blamed.has(dependent) ? "wrong" : edits.has(own[0]) ? "edited" : "";
      return { word: dependent, head: above, relation: own[7], kind, first: Math.min(dependent, above),
        last: Math.max(dependent, above), length: Math.abs(dependent - above) };
    });
    for (const form of ["across", "down"]) {
      [state[form], state.heights[form]] = draw(state.given[form], arcs, form === "down", picture.dir === "rtl");
    }
    pre.textContent = correct(state, state.given.text);
    state.shown = "";
    picture.style.minHeight = state.heights[state.wanted] + "px";
    fill(picture);
    state.note ||= state.section.querySelector("h2").appendChild(document.createElement("span"));
    state.note.textContent = (edits.size ? ` · ${edits.size} changed` : "") + (fault && ` · ${fault}`);
    [state.note.className, state.fault, saved] = [fault ? "errors" : "edited", fault, false];
    tell("");
    pick(picture, word);
  }

  function change(head, name) {
    const { picture, word, row } = picked;
    if (head === word || (String(head) === row[6] && name === row[7])) return pick(picture, word);
    past.push([picture, word, row[6], row[7]]);
    update(picture, word, head, name);
  }

  function undo() {
    if (past.length) update(...past.pop());
    if (picked) picked.picture.focus();
  }

  function tell(before) {
    const given = [...states.values()].filter((state) => state.given);
    const num = given.reduce((sum, state) => sum + changed(state).size, 0);
    const faulty = given.filter((state) => state.fault);
    const broken = faulty.map((state) => `; sentence ${state.section.id.slice(1)} is no tree: ${state.fault}`);
    byId("edits").textContent = `${before}${num} changed${broken.join("")}`;
    byId("edits").className = broken.length ? "errors" : "";
    byId("undo").disabled = !past.length;
  }

  function pick(picture, word) {
    const rows = rowsOf(picture), row = rows.get(word), state = states.get(picture);
    if (bar.hidden) {
      const names = new Set([...states.keys()].flatMap((each) => [...rowsOf(each).values()].map((own) => own[7])));
      byId("relations").replaceChildren(...[...names].sort().map((name) => new Option(name)));
      bar.hidden = false;
    }
    [picked, pointing, state.word] = [{ picture, word, row }, false, word];
    for (const old of document.querySelectorAll(".picked")) old.classList.remove("picked");
    wordOf(picture, word)?.classList.add("picked");
    byId("picked").textContent = `${word} ${row[1]}`;
    heads.replaceChildren(new Option("0 (root)", 0),
      ...[...rows].filter(([other]) => other !== word).map(([other, own]) => new Option(`${other} ${own[1]}`, other)));
    [heads.value, relation.value] = [row[6], row[7]];
    if (document.activeElement === picture) look(picture, word);
  }

  const attach = (head) => change(head, picked.row[7]);
  let pressed = null; // the word that is dragged to its head
  main.addEventListener("pointerdown", ({ target }) => { pressed = target.closest(".word"); });
  main.addEventListener("pointerup", (event) => {
    const word = event.target.closest(".word"), picture = word?.closest(".picture");
    if (!pressed || !picture?.contains(pressed)) return;
    if (!pointing || picked.picture !== picture) pick(picture, Number(pressed.dataset.w));
    attach(Number(word.dataset.w));
  });
  main.addEventListener("keydown", (event) => {
    const { key } = event, picture = event.target.closest(".picture"), state = states.get(picture);
    if (!state || event.altKey || event.ctrlKey || event.metaKey) return;
    if (pointing && picked.picture === picture) {
      if (key === "Enter") attach(state.word);
      else if (key === "0") attach(0);
      else if (key === "Escape") pick(picture, picked.word);
    } else if (key === "u") undo();
    else if (state.word && /^(Arrow|Home|End|[hr]$)/.test(key)) {
      pick(picture, state.word);
      if (key === "h") {
        pointing = true;
        byId("picked").textContent += ": go to its head, Enter";
      } else if (key === "r") {
        event.preventDefault();
        relation.focus();
        relation.select();
      }
    }
  });
  heads.addEventListener("change", () => attach(Number(heads.value)));
  relation.addEventListener("change", () => relation.reportValidity() && change(picked.row[6], relation.value));
  const back = (event) => {
    if (event.type === "keydown" && event.key !== "Escape") return;
    event.preventDefault();
    pick(picked.picture, picked.word);
    picked.picture.focus();
  };
  for (const kind of ["submit", "keydown"]) bar.addEventListener(kind, back);
  byId("undo").addEventListener("click", undo);
  byId("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([...states].map(([picture, state]) => {
      const pre = picture.closest("figure").querySelector("pre"), { conllu } = pre.dataset;
      return conllu ? correct(state, JSON.parse(conllu)) : pre.textContent + "\n";
    })));
    link.download = "corrected.conllu";
    link.click();
    saved = true;
    tell("saved: ");
  });
  addEventListener("beforeunload", (event) => saved || event.preventDefault());
}
