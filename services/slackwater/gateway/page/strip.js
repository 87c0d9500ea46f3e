// The strip: a row for each key, a cell for each window; below it a row for each stream. The cells
// are made once and changed in place, if what they show has changed. Rows are there as far as one has
// scrolled; those that a task has no time for follow with the next frame. Arrow keys move, Enter
// explains.

import { cell, lane, windowState } from "./model.js";
import { STATES, el, number, short, time } from "./words.js";

export const ROWS_MAX = 40;
const ROWS_STEP = 8;
const NEAR = "100px"; // below what is on the screen
const SLICE_MS = 4;
const TEXT_MAX = 6; // characters that fit a cell

export class Strip {
  constructor(explain, select) {
    this.explain = explain;
    this.select = select;
    // Its rows are boxes, so what a table would tell of itself is said.
    this.body = el("tbody", { role: "rowgroup" });
    this.head = el("tr", { role: "row" });
    this.table = el(
      "table",
      { class: "strip", role: "grid", "aria-label": "Windows of each key and stream" },
      el("thead", { role: "rowgroup" }, this.head),
      this.body,
    );
    this.rows = [];
    this.at = null; // {row, start}
    this.frame = 0; // in which the next rows are drawn
    this.depth = ROWS_STEP; // rows of keys
    this.end = el("div", { class: "end" });
    this.observer = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && this.grow(), { rootMargin: NEAR });
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.table.addEventListener("click", (event) => {
      const found = event.target.closest("td");
      if (found) this.open(found);
    });
    this.table.addEventListener("focusin", (event) => {
      const found = event.target.closest("td");
      if (found) this.move(found, false);
    });
  }

  show({ windows, due, keys, streams, name, bound }) {
    const columns = [...windows, ...due];
    this.shift(columns);
    this.columns = columns;
    this.given = { keys, streams, name, bound };
    this.fit(this.head, columns.length + 1, "head");
    [...this.head.children].forEach((th, i) => {
      const window = columns[i - 1];
      set(th, i === 0 ? "window" : i % 6 === 1 ? time(window.start) : "");
    });
    this.fill();
  }

  fill() {
    const { keys, streams } = this.given;
    const rows = [
      ...keys.slice(0, this.depth).map((key) => ({ kind: "key", name: key })),
      ...streams.map((stream) => ({ kind: "stream", name: stream.stream, of: stream })),
    ];
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    this.rows = rows;
    this.slice(0);
  }

  // More rows of keys, if there are more; another follows if its end is still near.
  grow() {
    if (this.given === undefined || this.depth >= this.given.keys.length) return;
    this.depth += ROWS_STEP;
    this.fill();
  }

  slice(from) {
    const { name, bound } = this.given;
    const until = performance.now() + SLICE_MS;
    let r = from;
    for (; r < this.rows.length && (r === from || performance.now() < until); r += 1) {
      if (r === this.body.children.length) this.body.append(el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" })));
      this.row(this.body.children[r], this.rows[r], this.columns, name, bound);
    }
    cancelAnimationFrame(this.frame);
    if (r < this.rows.length) this.frame = requestAnimationFrame(() => this.slice(r));
    else if (this.depth < this.given.keys.length) this.watch();
    this.reach();
  }

  // An observer that begins says where its element is, also if that was near before.
  watch() {
    this.observer.unobserve(this.end);
    this.observer.observe(this.end);
  }

  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }

  row(tr, row, columns, name, bound) {
    tr.className = row.kind;
    this.fit(tr, columns.length + 1, "td");
    const label = row.kind === "stream" ? `${short(row.name, 24)}` : short(row.name, 24);
    set(tr.firstChild, label);
    tr.firstChild.title = row.name.slice(0, 400);
    columns.forEach((window, i) => {
      const td = tr.children[i + 1];
      const shows = [window, window.version, bound, name, row.kind, row.name];
      if (window.parts && td.shows?.every((each, at) => each === shows[at])) return;
      td.shows = shows;
      const of = row.kind === "key" ? keyCell(window, row.name, name, bound) : laneCell(window, row);
      if (td.className !== of.class) td.className = of.class;
      set(td, of.text);
      const said = `${short(row.name, 80)}, ${time(window.start)}, ${of.said}`;
      if (td.getAttribute("aria-label") !== said) td.setAttribute("aria-label", said);
    });
  }

  // Windows leave on the left: their cells are removed, so that the others stay as they are.
  shift(columns) {
    const gone = (this.columns ?? []).findIndex((window) => window.start === columns[0]?.start);
    if (gone <= 0) return;
    for (const tr of this.table.rows) {
      for (let i = 0; i < gone; i += 1) tr.children[1]?.remove();
    }
  }

  fit(tr, count, tag) {
    while (tr.children.length < count) {
      tr.append(el("td", tag === "td" ? { role: "gridcell", tabindex: -1 } : { role: "gridcell" }));
    }
    while (tr.children.length > count) tr.lastChild.remove();
  }

  // One cell can be reached by Tab: the one that was used last, else the newest answered one.
  reach() {
    const old = this.table.querySelector('td[tabindex="0"]');
    let found = null;
    if (this.at) {
      const r = this.rows.findIndex((row) => row.name === this.at.name && row.kind === this.at.kind);
      const c = this.columns.findIndex((window) => window.start === this.at.start);
      if (r >= 0 && c >= 0) found = this.body.children[r]?.children[c + 1] ?? null;
    }
    const last = this.columns.findLastIndex((window) => window.parts);
    found ??= this.body.firstChild?.children[Math.max(last, 0) + 1] ?? null;
    if (old !== found) {
      const had = old !== null && old === document.activeElement;
      old?.setAttribute("tabindex", -1);
      found?.setAttribute("tabindex", 0);
      if (had) found?.focus({ preventScroll: true });
    }
  }

  // Where a cell is now: its row, and its column without that of the names.
  place(td) {
    return [td.parentNode.sectionRowIndex, td.cellIndex - 1];
  }

  move(td, focus = true) {
    const [r, c] = this.place(td);
    const row = this.rows[r];
    const window = this.columns[c];
    if (!row || !window) return;
    this.at = { name: row.name, kind: row.kind, start: window.start };
    this.reach();
    if (focus) td.focus();
  }

  key(event) {
    const td = event.target.closest("td");
    if (!td) return;
    const [r, c] = this.place(td);
    const to = {
      ArrowLeft: [r, c - 1],
      ArrowRight: [r, c + 1],
      ArrowUp: [r - 1, c],
      ArrowDown: [r + 1, c],
      Home: [r, 0],
      End: [r, this.columns.length - 1],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.open(td);
    } else if (to) {
      event.preventDefault();
      if (to[0] >= this.depth - 1) this.grow();
      const next = this.body.children[to[0]]?.children[to[1] + 1];
      if (next && to[1] >= 0) this.move(next);
    }
  }

  open(td) {
    const [r, c] = this.place(td);
    const row = this.rows[r];
    const window = this.columns[c];
    if (!row || !window) return;
    this.move(td);
    if (row.kind === "key") this.explain(row.name, window.start);
    else this.select(row.name);
  }
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function band(window) {
  const { state } = windowState(window, null);
  return state === "exact" ? "none" : state;
}

function keyCell(window, key, name, bound) {
  if (!window.parts) return { class: "cell due", text: "", said: "due" };
  const of = cell(window, key, name, bound);
  const late = of.late ? " late" : "";
  if (window.count > 1) {
    return { class: `cell none${late}`, text: "", said: `${window.count} windows without readings` };
  }
  if (of.empty) {
    const why = of.missing.length ? `, without ${of.missing.join(", ")}` : "";
    const said = of.state === "unknown" ? STATES.unknown : `no value${why}`;
    return { class: `cell none of-${of.state}${late}`, text: "", said };
  }
  const without = of.state === "tentative" && of.missing.length ? `, without ${of.missing.join(", ")}` : "";
  const beyond = of.late ? ", later than the bound" : "";
  const shown = number(of.value);
  return {
    class: `cell ${of.state}${late}${shown.length > TEXT_MAX ? " long" : ""}`,
    text: shown,
    said: `${shown}, ${STATES[of.state]}${without}${beyond}`,
  };
}

function laneCell(window, row) {
  if (!window.parts) {
    const lane = row.of.lane.replace(" ", "-");
    return { class: `lane now-${lane}`, text: "", said: row.of.lane };
  }
  const was = lane(window, row.name);
  return { class: `lane ${was.replace(" ", "-")}`, text: "", said: was };
}
