// The view of one query.

import { list } from "./alerts.js";
import { Chart, LINES_MAX, drawFirst, drawValues } from "./figures.js";
import { cell, earlyErrors, figure, history } from "./model.js";
import { ROWS_MAX, Strip } from "./strip.js";
import { STATES, el, number, seconds, short, time } from "./words.js";

const CELL_PX = 50;
const ALERTS_MAX = 4;
const DUE_MAX = 3;
const CELLS_MIN = 24;
const POINTS_MIN = 60;

export class QueryView {
  constructor(name, model, place) {
    this.name = name;
    this.model = model;
    this.place = place; // reads and writes the state in the URL
    this.sentence = el("p", { class: "sentence" });
    this.note = el("p", { class: "note", role: "status", hidden: true });
    this.facts = el("p", { class: "facts" });
    this.figures = el("select", { id: "figure", onchange: () => this.choose() });
    this.filter = el("input", { id: "filter", type: "search", maxlength: 200, placeholder: "part of a key", oninput: () => this.choose() });
    this.filter.value = place.get("filter") ?? "";
    this.values = new Chart("Values");
    this.first = new Chart("First answers");
    this.legend = el("ul", { class: "legend", "aria-label": "Lines" });
    this.more = el("p", { class: "facts" });
    this.errors = el("p", { class: "facts errors" });
    this.strip = new Strip((key, start) => place.set({ key, window: start }), (stream) => place.go({ view: "streams", stream }));
    this.scroll = el("div", { class: "scroll of-strip" }, this.strip.table);
    this.table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Values as a table" });
    this.details = el("details", { ontoggle: () => this.draw() }, el("summary", {}, "Values as a table"), this.table);
    this.panel = el("aside", { class: "panel", hidden: true, "aria-label": "How this value came about", tabindex: -1, onkeydown: (event) => event.key === "Escape" && this.shut() });
    this.empty = el("p", { class: "empty", hidden: true });
    this.firing = el("section", { class: "of-query", hidden: true });
    this.content = el("div", {},
      el("section", { class: "card" }, el("div", { class: "row" }, el("h2", {}, "Values"), el("label", { for: "figure" }, "figure "), this.figures, el("label", { for: "filter" }, "keys "), this.filter), this.values.box, this.legend, this.details),
      el("section", { class: "card" }, el("h2", {}, "Windows"), key(), this.scroll, this.strip.end, this.more, this.panel),
      el("section", { class: "card" }, el("h2", {}, "First answers against X"), this.first.box, el("p", { class: "facts" }, "Time from when a window is due until its first answer is written. Dots are exact, rings tentative; the dashed line is the bound."), this.errors),
    );
    this.node = el("div", {}, el("p", {}, el("a", { href: "#view=queries" }, "← all queries")), el("h1", {}, short(name, 60)), this.sentence, this.facts, this.note, this.firing, this.empty, this.content);
    this.open = "";
    this.width = 0;
    this.observer = new ResizeObserver(([of]) => this.resize(of.contentRect.width));
    this.observer.observe(this.scroll);
  }

  close() {
    clearTimeout(this.charting);
    clearTimeout(this.resizing);
    this.strip.close();
    this.values.close();
    this.first.close();
    this.observer.disconnect();
  }

  // Not in the frame that found the other width: that one has its own work.
  resize(width) {
    if (width === this.width) return;
    this.width = width;
    clearTimeout(this.resizing);
    this.resizing = setTimeout(() => this.draw(), 0);
  }

  choose() {
    this.place.set({ figure: this.figures.value, filter: this.filter.value || null }, true);
    this.draw();
  }

  shut() {
    this.place.set({ key: null, window: null });
    this.strip.table.querySelector('td[tabindex="0"]')?.focus();
  }

  show(status, streams, eventAt, deleted, alerts) {
    this.status = status ?? this.status;
    this.streams = streams;
    this.eventAt = eventAt;
    const of = this.status;
    const notes = [];
    if (deleted) notes.push("This query was deleted. What you see is what it answered last.");
    else if (of?.state === "paused") notes.push("This query is paused. Its inputs are kept; `slackwater query resume` continues it.");
    if (of?.generation) notes.push(`Changed while it ran: this is definition ${of.generation + 1}.`);
    if (of?.problem) notes.push(of.problem);
    if (this.model.gaps) notes.push("Retention deleted readings before they were used.");
    text(this.note, notes.join(" "));
    this.note.hidden = !notes.length;
    this.showAlerts(alerts?.firing.filter((each) => each.query === this.name) ?? []);
    text(this.sentence, deleted ? "deleted" : of?.sentence ?? "unknown");
    this.sentence.className = `sentence is-${deleted ? "paused" : of?.state}`;
    if (of) {
      const window = of.window ? `window ${of.window}` : "every reading";
      const p99 = of.p99_ms == null ? "" : `, p99 of first answers ${of.p99_ms} ms`;
      text(this.facts, `${window} over ${of.from.join(", ")}; ${of.aggregate.join(", ") || "no aggregate"}; bound X ${seconds(of.bound_ms)}${p99}`);
    }
    this.draw();
  }

  // Each chart is drawn in a task of its own, so that no task is long.
  charts(...draws) {
    const next = () => {
      draws.shift()();
      if (draws.length) this.charting = setTimeout(next, 0);
    };
    clearTimeout(this.charting);
    this.charting = setTimeout(next, 0);
  }

  showAlerts(firing) {
    const shape = JSON.stringify(firing);
    if (shape === this.alerts) return;
    this.alerts = shape;
    this.firing.hidden = !firing.length;
    const more = firing.length > ALERTS_MAX ? el("p", { class: "facts" }, el("a", { href: "#view=alerts" }, `${firing.length - ALERTS_MAX} more alerts`)) : null;
    this.firing.replaceChildren(el("h2", {}, "Alerts that fire"), list(firing.slice(0, ALERTS_MAX)), ...(more ? [more] : []));
  }

  draw() {
    const { model, status } = this;
    const bound = status?.bound_ms ?? null;
    const fits = Math.max(6, Math.floor(((this.width || 800) - 135) / CELL_PX));
    const past = model.last(Math.max(fits, POINTS_MIN));
    const due = this.due(past);
    const windows = past.slice(-Math.max(fits - due.length, CELLS_MIN));
    this.empty.hidden = windows.length > 0;
    this.content.hidden = windows.length === 0;
    if (!windows.length) {
      text(this.empty, status?.state === "starting" ? "This query is starting. Its first answer comes at most X after its first window is due." : "No answer yet. It comes at most X after the first window is due.");
      return;
    }
    const wanted = this.place.get("figure");
    const names = model.figures;
    if (this.figures.options.length !== names.length || [...this.figures.options].some((o, i) => o.value !== names[i])) {
      this.figures.replaceChildren(...names.map((name) => el("option", { value: name }, short(name))));
    }
    const name = names.includes(wanted) ? wanted : names.find((each) => each.endsWith(".avg")) ?? names[0] ?? "";
    if (this.figures.value !== name) this.figures.value = name;
    const part = this.filter.value.toLowerCase();
    const all = [...model.keys.keys()].filter((each) => each.toLowerCase().includes(part)).sort();
    const keys = all.slice(0, ROWS_MAX);
    text(this.more, all.length > keys.length ? `${all.length - keys.length} more keys: name a part of a key above` : "");
    const mine = this.streams.filter((each) => status?.streams.includes(each.stream));
    this.strip.show({ windows, due, keys, streams: mine, name, bound });
    const chosen = keys.slice(0, LINES_MAX);
    this.charts(
      () => drawValues(this.values, { windows: past, keys: chosen, name, bound }),
      () => bound !== null && drawFirst(this.first, { windows: past, bound }),
    );
    text(this.errors, errorWords(earlyErrors(model.windows.values(), name), name));
    const lines = chosen.join("\n");
    if (this.lines !== lines) {
      this.lines = lines;
      this.legend.replaceChildren(...chosen.map((each, i) => el("li", { class: `line-${i + 1}` }, short(each, 30))));
    }
    if (this.details.open) this.fillTable(windows, keys, name, bound);
    this.explain(name, bound);
  }

  due(windows) {
    if (!windows.length) return [];
    const slide = this.status?.slide_ms;
    if (!slide || !this.eventAt) return [];
    const last = windows.at(-1);
    const size = last.count === 1 ? last.end - last.start : slide;
    const found = [];
    let start = last.count === 1 ? last.start + slide : last.end;
    while (found.length < DUE_MAX && start + size <= this.eventAt) {
      found.push({ start, end: start + size });
      start += slide;
    }
    return found;
  }

  fillTable(windows, keys, name, bound) {
    const head = el("tr", {}, el("th", { scope: "col" }, "window"), keys.map((each) => el("th", { scope: "col" }, short(each, 24))));
    const rows = windows.toReversed().map((window) => el("tr", {}, el("th", { scope: "row" }, time(window.start)), keys.map((each) => {
      const of = cell(window, each, name, bound);
      const state = of.empty || of.state === "exact" ? "" : ` (${STATES[of.state]})`;
      return el("td", {}, of.empty ? "·" : `${number(of.value)}${state}`);
    })));
    this.table.replaceChildren(el("table", { class: "plain" }, el("thead", {}, head), el("tbody", {}, rows)));
  }

  explain(name, bound) {
    const key = this.place.get("key");
    const window = this.model.windows.get(Number(this.place.get("window")));
    const steps = key === null || !window ? [] : history(window, key);
    const open = key !== null && this.place.get("window") !== null;
    const shape = open ? JSON.stringify([key, window?.start, steps.map((step) => step.seq), name]) : "";
    if (shape === this.open) return;
    const was = this.open;
    this.open = shape;
    this.panel.hidden = !open;
    if (!open) return;
    const head = el("div", { class: "row" }, el("h3", {}, `${short(key, 60)}, ${window ? `${time(window.start)} to ${time(window.end)}` : "an earlier window"}`), el("button", { type: "button", onclick: () => this.shut() }, "Close"));
    const body = steps.length ? el("ol", { class: "steps" }, steps.map((step, i) => this.step(step, steps.slice(0, i), name, bound))) : el("p", {}, window ? "No row of this key is in this window." : "This window is no longer kept here.");
    const query = `window_start=${encodeURIComponent(new Date(window?.start ?? 0).toISOString())}&key=${encodeURIComponent(key)}`;
    const link = el("a", { href: `/api/v1/queries/${encodeURIComponent(this.name)}/history?${query}` }, "the records as JSON");
    this.panel.replaceChildren(head, body, el("p", { class: "facts" }, link));
    if (!was) this.panel.focus({ preventScroll: false });
  }

  step(step, before, name, bound) {
    const at = time(Date.parse(step.emitted_at));
    if (step.what === "undo") {
      return el("li", { class: "of-withdrawn" }, el("b", {}, "withdrawn"), ` at ${at}: the missing readings have come, and the exact answers follow.`);
    }
    const value = number(figure(step.fields, name));
    const count = Object.values(step.fields).find((of) => of?.count !== undefined)?.count;
    const of = count === undefined ? "" : `, of ${count} readings`;
    const isFirst = step.what === "tentative" || !step.epoch;
    const late = isFirst && bound !== null && step.after > bound ? `, which is beyond the bound of ${seconds(bound)}` : "";
    const when = `written at ${at}, ${seconds(step.after)} after it was due${late}`;
    if (step.what === "tentative") {
      const without = step.missing.length ? ` without ${step.missing.join(", ")}` : "";
      return el("li", { class: "of-tentative" }, el("b", {}, `${value} tentative`), `${without}${of}; ${when}.`);
    }
    const earlier = before.findLast((each) => each.what === "tentative");
    const was = earlier ? figure(earlier.fields, name) : null;
    const now = figure(step.fields, name);
    const error = was == null || now == null ? "" : now === was ? " The tentative answer was right." : ` The tentative answer was off by ${number(Math.abs(now - was))}.`;
    return el("li", { class: "of-exact" }, el("b", {}, `${value} exact`), `${of}; ${when}.${error}`);
  }
}

function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

function errorWords(of, name) {
  if (!of.rows) return "No tentative answer of the windows kept here is exact yet, so there is no error to tell.";
  const values = `${of.rows} tentative value${of.rows === 1 ? "" : "s"} of ${name} ${of.rows === 1 ? "is" : "are"} exact now: ${of.right} right`;
  const off = of.compared ? `, off by ${number(of.sum / of.compared)} on average and by ${number(of.greatest)} at most` : "";
  const gone = of.gone ? `; ${of.gone} without an exact row` : "";
  return `${values}${off}${gone}.`;
}

function key() {
  const names = [["exact", "exact"], ["corrected", "corrected"], ["tentative", "tentative"], ["withdrawn", "withdrawn"], ["due", "due"], ["exact late", "first answer beyond X"]];
  return el("ul", { class: "states", "aria-label": "What cells mean" }, names.map(([name, said]) => el("li", {}, el("span", { class: `cell ${name}`, "aria-hidden": "true" }), said)));
}
