// Which alerts fire, are pending, and ended last. The gateway makes the sentences and pushes the
// whole state; what is new in it is announced.

import { el, number, short, time } from "./words.js";

const SAID_MAX = 3;
const MARKS = { pending: "pending", ended: "ended", confirmed: "confirmed", withdrawn: "withdrawn" };
const HOWTO = ["alerts:", "  hot: {query: climate, when: temperature_avg > 26, for: 2, tentative: act}", "  mute: {stream: lab, missing: 30s}"].join("\n");

const mark = (of) => (of.state !== "firing" ? MARKS[of.state] : of.tentative ? "tentative" : "firing");

export const total = (alerts, kind) => alerts[kind].length + alerts.left_off[kind];

// What to announce: alerts that were not there, and ends. All of a state would be too much.
export function news(was, now) {
  if (!was) return "";
  const known = new Set([...was.firing, ...was.ended].map((each) => each.event_id));
  const fresh = [...now.ended.toReversed(), ...now.firing.toReversed()].filter((each) => !known.has(each.event_id));
  const said = fresh.slice(-SAID_MAX).map((each) => `${name(each)}: ${each.sentence}`);
  if (fresh.length > SAID_MAX) said.unshift(`${fresh.length} alerts changed, the last ones`);
  return said.join(". ");
}

const name = (of) => `${of.alert} of ${of.query}${of.key ? `, ${short(of.key)}` : ""}`;

export function alertsView(alerts) {
  if (!alerts) return el("p", { class: "empty" }, "Reading the alerts ...");
  const head = el("h1", {}, "Alerts");
  const isEmpty = !["firing", "pending", "ended"].some((kind) => total(alerts, kind));
  if (!alerts.rules.length && isEmpty) {
    return el("div", {}, head, el("div", { class: "empty" }, el("p", {}, "No alert is declared. A section of the deployment file, or ", el("code", {}, "CREATE ALERT"), ", declares one:"), el("pre", {}, HOWTO)));
  }
  const kinds = [["Firing", "firing"], ["Pending", "pending"], ["Ended", "ended"]];
  return el("div", {}, head, el("p", { class: "sentence" }, summary(alerts)),
    kinds.map(([title, kind]) => section(title, kind, alerts)),
    el("details", { id: "alert-table" }, el("summary", {}, "Alerts as a table"), table(alerts)),
    el("section", { class: "card" }, el("h2", {}, "Rules"), alerts.rules.length ? el("ul", { class: "facts rules" }, alerts.rules.map((each) => el("li", {}, `${each.alert} of ${each.query}: ${each.sentence}`))) : el("p", { class: "facts" }, "No rule is left.")));
}

function summary(alerts) {
  const tentative = alerts.firing.filter((each) => each.tentative).length;
  const fire = total(alerts, "firing");
  if (!fire) return total(alerts, "pending") ? `No alert fires; ${total(alerts, "pending")} pending` : "No alert fires";
  return `${fire} ${fire === 1 ? "alert fires" : "alerts fire"}${tentative ? `, ${tentative} of them tentative` : ""}`;
}

function section(title, kind, alerts) {
  const of = alerts[kind];
  const left = alerts.left_off[kind];
  if (!of.length && !left) return null;
  return el("section", {}, el("h2", {}, title), list(of), left ? el("p", { class: "facts" }, `${left} more: slackwater alerts lists all`) : null);
}

export const list = (of) => el("ul", { class: "alerts" }, of.map(card));

function card(of) {
  const kind = mark(of);
  return el("li", { class: `card alert is-${kind}` },
    el("div", { class: "row" }, el("span", { class: `mark-of is-${kind}` }, kind), el("h3", {}, `${of.alert} of ${of.query}`, of.key ? [", ", el("bdi", {}, short(of.key, 60))] : [])),
    el("p", {}, of.sentence), el("p", { class: "facts" }, link(of)));
}

// An alert on rows leads to the explanation of the window that began it.
function link(of) {
  if (of.stream !== null) return el("a", { href: `#${new URLSearchParams({ view: "streams", stream: of.stream })}` }, `stream ${short(of.stream)}`);
  const at = Date.parse(of.window_start);
  const figure = (Object.keys(of.values)[0] ?? "").replace(/_([^_]*)$/, ".$1");
  const params = new URLSearchParams({ view: "query", query: of.query, key: of.key, window: at, figure });
  return el("a", { href: `#${params}` }, `why: window ${time(at)} to ${time(Date.parse(of.window_end))}`);
}

function table(alerts) {
  const heads = ["state", "alert", "query", "key", "from", "to", "value", "exact", "without"];
  const rows = [...alerts.firing, ...alerts.pending, ...alerts.ended].map((of) => el("tr", {}, el("th", { scope: "row" }, mark(of)),
    [of.alert, of.query, el("bdi", {}, short(of.key, 24)), at(of.window_start), of.state === "firing" ? "" : at(of.changed_to), values(of.values), of.exact ? values(of.exact) : "", of.missing.join(", ")].map((each) => el("td", {}, each))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Alerts as a table" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, heads.map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, rows)));
}

const at = (text) => `${text.slice(0, 10)} ${text.slice(11, 19)}`;

const values = (of) => Object.entries(of).map(([figure, value]) => `${figure} ${number(value)}`).join(", ");
