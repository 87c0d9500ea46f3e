// The page: one stream of events, one view at a time. The state of the view is in the URL.

import { alertsView, news, total } from "./alerts.js";
import { QueryModel } from "./model.js";
import { QueryView } from "./query.js";
import { machinesView, problems, queriesView, streamsView, tokenView } from "./views.js";
import { el, time } from "./words.js";

const DRAW_MS = 100;
const AWAY_MS = 4000;

const byId = (id) => document.getElementById(id);
const state = { status: null, alerts: null, model: new QueryModel(), query: null, view: null, source: null, id: "", opened: new Map(), deleted: false, begun: null, isLive: false, awaySince: null, needsToken: false, spoken: new Map(), shown: "", knownAt: null };

const place = {
  params: () => new URLSearchParams(location.hash.slice(1)),
  get: (name) => place.params().get(name),
  set(changes, replace = false) {
    const params = place.params();
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) params.delete(name);
      else params.set(name, value);
    }
    history[replace ? "replaceState" : "pushState"](null, "", `#${params}`);
    schedule();
  },
  go: (params) => (location.hash = new URLSearchParams(params).toString()),
};

function wantedQuery() {
  const params = place.params();
  return params.get("view") === "query" ? params.get("query") : null;
}

// ---- the stream

function connect() {
  disconnect();
  if (document.hidden || state.needsToken) return;
  const query = wantedQuery();
  const params = new URLSearchParams();
  if (query !== null && !state.deleted) {
    params.set("query", query);
    if (state.id) params.set("after", state.id);
  }
  const source = (state.source = new EventSource(`/api/v1/stream?${params}`));
  source.addEventListener("open", () => live(true));
  source.addEventListener("error", () => lost(source));
  source.addEventListener("status", (event) => {
    state.status = JSON.parse(event.data);
    if (state.status.kafka) state.knownAt = state.status.at;
    live(true);
    speak();
    checkBegun();
    schedule();
  });
  source.addEventListener("alerts", (event) => {
    const was = state.alerts;
    state.alerts = JSON.parse(event.data);
    say(news(was, state.alerts));
    schedule();
  });
  source.addEventListener("snapshot", () => {
    state.model.clear();
    state.id = "";
  });
  source.addEventListener("change", (event) => {
    state.id = event.lastEventId;
    state.model.apply(JSON.parse(event.data));
    schedule();
  });
  source.addEventListener("ended", () => {
    state.deleted = true;
    connect();
    schedule();
  });
}

function disconnect() {
  state.source?.close();
  state.source = null;
}

function lost(source) {
  live(false);
  // A connection that broke is made again by the browser; a refused one is not.
  if (source.readyState === EventSource.CLOSED && source === state.source) {
    session().then(() => setTimeout(() => source === state.source && connect(), 2000));
  }
}

function live(isLive) {
  if (isLive) state.awaySince = null;
  else state.awaySince ??= Date.now();
  state.isLive = isLive;
  schedule();
}

// The query was deleted and made again under its name: nothing of before is of it.
function checkBegun() {
  const of = state.status.queries.find((each) => each.query === state.query);
  if (!of) return;
  const isOther = state.begun !== null && of.begun_at !== state.begun;
  state.begun = of.begun_at;
  if (isOther && (state.deleted || !of.generation)) {
    state.deleted = false;
    state.id = "";
    state.model.clear();
    connect();
  }
}

async function session() {
  try {
    const found = await (await fetch("/api/v1/session")).json();
    state.needsToken = Boolean(found.needs_token) && !found.right;
  } catch {
    // away; the page says so
  }
  schedule();
}

async function sendToken(token) {
  try {
    const answer = await fetch("/api/v1/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
    if (!answer.ok) return (await answer.json()).error;
  } catch {
    return "the gateway does not answer";
  }
  state.needsToken = false;
  connect();
  schedule();
  return "";
}

// ---- drawing

// At once, unless the page was drawn less than DRAW_MS ago.
let timer = null;
let drawnAt = -DRAW_MS;
function schedule() {
  timer ??= setTimeout(() => {
    timer = null;
    drawnAt = performance.now();
    draw();
  }, drawnAt + DRAW_MS - performance.now());
}

function draw() {
  header();
  const main = byId("main");
  const name = state.needsToken ? "token" : place.get("view") ?? "queries";
  const query = wantedQuery();
  const isOther = state.shown !== name || state.query !== query;
  if (isOther) enter(main, name, query);
  if (name === "token") return;
  if (name === "query" && state.view) {
    const of = state.status?.queries.find((each) => each.query === query);
    const unknown = state.status && !of && !state.deleted && !state.model.windows.size;
    if (unknown) replace(main, `unknown ${query}`, () => el("div", { class: "empty" }, el("h1", {}, "There is no such query"), el("p", {}, el("a", { href: "#view=queries" }, "All queries"))));
    else {
      if (state.drawn.startsWith("unknown")) main.replaceChildren(state.view.node);
      state.drawn = "query";
      state.view.show(of, state.status?.streams ?? [], state.status?.event_at ? Date.parse(state.status.event_at) : null, state.deleted, state.alerts);
    }
    return;
  }
  if (!state.status) return replace(main, "waiting", () => el("p", { class: "empty" }, "Connecting to the gateway ..."));
  const { at, event_at, ...rest } = state.status;
  const shape = JSON.stringify([name, rest, [...state.opened]]);
  if (name === "streams") replace(main, shape, () => streamsView(state.status, state.opened, openStream));
  else if (name === "alerts") replace(main, JSON.stringify([name, state.alerts]), () => alertsView(state.alerts));
  else if (name === "machines") replace(main, shape, () => el("div", {}, problems(state.status), machinesView(state.status)));
  else replace(main, shape, () => queriesView(state.status));
}

// Put another view in place; what had the focus has it again if it is still there.
function replace(main, shape, make) {
  if (state.drawn === shape) return;
  state.drawn = shape;
  const had = document.activeElement;
  const focused = focusables(main).indexOf(had);
  const open = [...main.querySelectorAll("details[open]")].map((each) => each.id);
  main.replaceChildren(make());
  for (const each of main.querySelectorAll("details")) each.open = open.includes(each.id);
  if (focused < 0) return;
  const same = focusables(main).find((each) => had.hash && each.hash === had.hash);
  (same ?? focusables(main)[focused])?.focus({ preventScroll: true });
}

const focusables = (node) => [...node.querySelectorAll("a, button, input, summary, [tabindex='0']")];

function enter(main, name, query) {
  const had = state.shown !== "";
  state.shown = name;
  state.view?.close();
  state.view = null;
  state.drawn = "";
  if (state.query !== query) {
    state.query = query;
    state.id = "";
    state.begun = null;
    state.deleted = false;
    state.model = new QueryModel();
    connect();
  }
  if (name === "token") {
    disconnect();
    main.replaceChildren(tokenView(sendToken));
    byId("token").focus();
  } else if (name === "query") {
    state.view = new QueryView(query, state.model, place);
    main.replaceChildren(state.view.node);
  }
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === `#view=${name === "query" ? "queries" : name}`;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = query === null ? "slackwater" : `${query.slice(0, 60)} – slackwater`;
  if (had && name !== "token") main.focus({ preventScroll: true });
}

async function openStream(stream) {
  if (state.opened.delete(stream)) return schedule();
  state.opened.set(stream, null);
  schedule();
  let found;
  try {
    found = await (await fetch(`/api/v1/streams/${encodeURIComponent(stream)}/quarantine`)).json();
  } catch {
    found = { error: "the gateway does not answer" };
  }
  if (state.opened.has(stream)) state.opened.set(stream, found);
  schedule();
}

function header() {
  const { status } = state;
  const fire = state.alerts ? total(state.alerts, "firing") : 0;
  const link = byId("alerts-link");
  set(link, fire ? `Alerts (${fire})` : "Alerts");
  link.setAttribute("aria-label", fire ? `Alerts (${fire}) firing` : "Alerts");
  link.classList.toggle("fires", fire > 0);
  const isAway = !state.isLive && status !== null && !state.needsToken;
  const verdict = byId("verdict");
  const banner = byId("banner");
  const at = status ? time(Date.parse(status.at)) : "";
  let words = "connecting";
  let kind = "wait";
  if (state.needsToken) words = "";
  else if (status) {
    const inexact = status.queries.filter((each) => !["exact", "paused"].includes(each.state)).length;
    words = !status.well ? "not well" : inexact ? `${inexact} of ${status.queries.length} queries not exact` : "all is well";
    kind = !status.well ? "bad" : inexact ? "attention" : "good";
    words += ` at ${at} UTC`;
  }
  if (isAway) kind = "wait";
  document.body.classList.toggle("away", isAway || status?.kafka === false);
  set(verdict, words);
  verdict.className = `verdict ${kind}`;
  const said = isAway ? `The gateway is away. Values stay as of ${at} UTC; this page tries again.` : status && !status.kafka ? `Kafka does not answer. Values stay${state.knownAt ? ` as of ${time(Date.parse(state.knownAt))} UTC` : ""}; new ones follow when it is back.` : "";
  set(banner, said);
  banner.hidden = !said;
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Say a change of state once, not every second.
function speak() {
  const said = [];
  for (const query of state.status.queries) {
    const was = state.spoken.get(query.query);
    const now = `${query.state} ${query.missing.join(", ")}`;
    if (was !== undefined && was !== now) said.push(`${query.query}: ${query.sentence}`);
    state.spoken.set(query.query, now);
  }
  say(said.join(". "));
}

// What is said within a second is said together: a screen reader drops what is replaced at once.
let saidAt = 0;
function say(text) {
  if (!text) return;
  const spoken = byId("spoken");
  const isSoon = Date.now() - saidAt < 1000;
  spoken.textContent = isSoon ? `${spoken.textContent}. ${text}`.slice(-2000) : text;
  saidAt = Date.now();
}

// ---- begin

addEventListener("hashchange", schedule);
addEventListener("popstate", schedule);
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", schedule);
state.query = wantedQuery();
state.drawn = "";
session().then(() => {
  connect();
  draw();
});
