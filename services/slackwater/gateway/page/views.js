// The views without charts: all queries, streams with their quarantine, machines, and the token.

import { el, short, time } from "./words.js";

export function queriesView(status) {
  if (!status.queries.length) {
    return el("div", { class: "empty" }, el("h1", {}, "No query yet"), el("p", {}, "Run a deployment with ", el("code", {}, "slackwater up rooms.yaml"), ", or see ", el("code", {}, "slackwater demo"), "."));
  }
  const cards = status.queries.map((query) => el("li", {}, el("a", { class: `query is-${query.state}`, href: `#view=query&query=${encodeURIComponent(query.query)}` },
    el("span", { class: "name" }, short(query.query, 60)),
    el("span", { class: "sentence" }, query.sentence),
    el("span", { class: "facts" }, `${query.window ? `window ${query.window}` : "every reading"}, ${query.from.join(", ")}${query.p99_ms == null ? "" : `, p99 ${query.p99_ms} ms of ${query.bound_ms / 1000} s`}`))));
  return el("div", {}, el("h1", {}, "Queries"), problems(status), el("ul", { class: "queries" }, cards));
}

export function problems(status) {
  if (!status.problems.length) return null;
  return el("ul", { class: "problems" }, status.problems.map((each) => el("li", {}, each)));
}

export function streamsView(status, opened, open) {
  const rows = status.streams.map((stream) => el("li", { class: `stream is-${stream.lane.replace(" ", "-")}` },
    el("div", { class: "row" }, el("h2", {}, short(stream.stream, 60)), el("span", { class: "word" }, stream.lane)),
    el("p", {}, stream.sentence),
    Object.keys(stream.quarantined).length || opened.has(stream.stream) ? el("button", { type: "button", "aria-expanded": opened.has(stream.stream) ? "true" : "false", onclick: () => open(stream.stream) }, opened.has(stream.stream) ? "Hide the quarantine" : "What is in quarantine, and why") : null,
    opened.has(stream.stream) ? quarantine(opened.get(stream.stream)) : null));
  return el("div", {}, el("h1", {}, "Streams"), rows.length ? el("ul", { class: "streams" }, rows) : el("p", { class: "empty" }, "No stream yet."));
}

function quarantine(found) {
  if (!found) return el("p", {}, "reading ...");
  if (found.error) return el("p", { class: "note" }, found.error);
  if (!found.reasons.length) return el("p", {}, "Nothing is in quarantine.");
  return el("dl", { class: "reasons" }, found.reasons.flatMap((each) => [
    el("dt", {}, `${each.reason}: ${each.count}`),
    el("dd", {}, each.advice ? el("p", {}, each.advice) : null, el("pre", {}, short(JSON.stringify(each.example, null, 1), 2000)))]));
}

export function machinesView(status) {
  const nodes = status.nodes.map((node) => el("li", { class: "card" }, el("h2", {}, node.node), el("p", {}, [node.standing, node.draining ? "draining" : "", ...node.problems].filter(Boolean).join(", ")), list(status.fragments.filter((each) => each.node === node.node).map((each) => [each.fragment ?? each.name, each.state]))));
  const rows = status.processes.map((each) => el("tr", { class: each.failing ? "bad" : "" }, el("th", { scope: "row" }, each.process), el("td", {}, each.state), el("td", {}, each.remark)));
  const table = el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ["process", "state", "remark"].map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, rows));
  return el("div", {}, el("h1", {}, "Machines"), nodes.length ? el("ul", { class: "nodes" }, nodes) : el("p", { class: "facts" }, "One machine runs everything."), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Processes" }, table));
}

const list = (pairs) => el("ul", { class: "facts" }, pairs.map(([name, state]) => el("li", {}, `${name}: ${state}`)));

export function tokenView(send) {
  const field = el("input", { id: "token", type: "password", autocomplete: "current-password", required: true, maxlength: 1024 });
  const said = el("p", { class: "note", role: "alert", hidden: true });
  const form = el("form", { class: "card token", onsubmit: async (event) => {
    event.preventDefault();
    said.hidden = true;
    const why = await send(field.value);
    said.textContent = why;
    said.hidden = !why;
  } }, el("h1", {}, "A token is needed"), el("p", {}, "Ask whoever runs this deployment. It is kept in a cookie that scripts cannot read."), el("label", { for: "token" }, "Token"), field, el("button", { type: "submit" }, "Open"), said);
  return form;
}

export { time };
