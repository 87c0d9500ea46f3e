// The windows of one query, from its changes. No DOM and no clock: the same changes give the same
// state. The gateway does the same in folded.py.

export const WINDOWS_MAX = 240;

export const ms = (text) => (text == null ? null : Date.parse(text));

export class QueryModel {
  constructor() {
    this.clear();
  }

  clear() {
    this.windows = new Map(); // start (ms) -> window
    this.keys = new Map(); // key -> last window in which it was seen
    this.figures = []; // "temperature.avg"
    this.version = 0;
    this.gaps = 0;
  }

  apply(change) {
    this.version += 1;
    if (change.kind === "answer") this.answer(change);
    else if (change.kind === "undo") this.undo(change);
    else if (change.kind === "gap") this.gaps += 1;
  }

  answer(change) {
    const start = ms(change.window_start);
    let found = this.windows.get(start);
    if (!found) {
      found = { start, end: ms(change.window_end), count: change.windows, parts: new Map(), version: 0 };
      this.windows.set(start, found);
      this.trim();
    }
    if (change.windows === 1 || !found.parts.size) {
      found.end = ms(change.window_end);
      found.count = change.windows;
    }
    const rows = new Map();
    for (const row of change.rows) {
      const before = rows.get(row.key);
      if (row.stime !== undefined && before) before.readings += 1;
      rows.set(row.key, { fields: row.fields, readings: before ? before.readings : 1 });
      this.keys.set(row.key, start);
      if (!this.figures.length) this.figures = figuresOf(row.fields);
    }
    let part = found.parts.get(change.part);
    if (!part) found.parts.set(change.part, (part = { answers: [], undone: [], revoked: false }));
    const after = (ms(change.emitted_at) - ms(change.due_at)) || 0;
    part.answers.push({ ...change, rows, after });
    part.revoked = false;
    found.version = this.version;
  }

  undo(change) {
    const [first, last] = [ms(change.undo_from), ms(change.undo_to)];
    for (const window of this.windows.values()) {
      const part = window.parts.get(change.part);
      if (!part || window.start < first || window.start > last) continue;
      if (part.answers.at(-1).label === "tentative") {
        part.revoked = true;
        part.undone.push(change);
        window.version = this.version;
      }
    }
  }

  trim() {
    if (this.windows.size <= WINDOWS_MAX) return;
    const oldest = Math.min(...this.windows.keys());
    this.windows.delete(oldest);
    for (const [key, seen] of this.keys) if (seen <= oldest) this.keys.delete(key);
  }

  // The last windows, oldest first.
  last(count) {
    return [...this.windows.values()].sort((a, b) => a.start - b.start).slice(-count);
  }
}

function figuresOf(fields) {
  const found = [];
  for (const [field, figures] of Object.entries(fields)) {
    if (figures === null || typeof figures !== "object") found.push(field);
    else for (const name of Object.keys(figures)) found.push(`${field}.${name}`);
  }
  return found;
}

export function figure(fields, name) {
  if (!fields) return null;
  const dot = name.lastIndexOf(".");
  const direct = fields[name];
  if (direct !== undefined && (direct === null || typeof direct !== "object")) return direct;
  const of = fields[name.slice(0, dot)];
  return of ? of[name.slice(dot + 1)] ?? null : null;
}

// What one key has in one window: its state, its value, and the withdrawn one.
export function cell(window, key, name, bound) {
  let answered = null;
  for (const part of window.parts.values()) {
    const mine = part.answers.filter((answer) => answer.rows.has(key));
    if (mine.length) answered = { part, mine };
  }
  if (!answered) return { ...windowState(window, bound), value: null, empty: true };
  const { part, mine } = answered;
  const best = mine.at(-1);
  const first = part.answers[0];
  const tentative = mine.find((answer) => answer.label === "tentative");
  return {
    state: stateOf(part),
    late: isLate(first, bound),
    value: figure(best.rows.get(key).fields, name),
    withdrawn: best !== tentative && tentative ? figure(tentative.rows.get(key).fields, name) : null,
    missing: best.missing,
    empty: false,
  };
}

export function windowState(window, bound) {
  const states = [...window.parts.values()].map(stateOf);
  const order = ["unknown", "withdrawn", "tentative", "skipped", "corrected", "exact"];
  const missing = new Set();
  let late = false;
  for (const part of window.parts.values()) {
    late ||= isLate(part.answers[0], bound);
    for (const name of part.answers.at(-1).missing) missing.add(name);
  }
  return { state: order.find((state) => states.includes(state)), late, missing: [...missing] };
}

function stateOf(part) {
  const best = part.answers.at(-1);
  if (part.revoked) return "withdrawn";
  if (best.incomplete) return "unknown";
  if (best.skipped) return "skipped";
  if (best.label === "tentative") return "tentative";
  return best.epoch ? "corrected" : "exact";
}

function isLate(first, bound) {
  const isFirst = first.label === "tentative" || !first.epoch;
  return isFirst && bound !== null && first.after > bound;
}

// How a stream took part in a window: in time, missing, or came later.
export function lane(window, stream) {
  let was = "in time";
  for (const part of window.parts.values()) {
    const lacked = part.answers.some((answer) => answer.missing.includes(stream));
    const lacks = part.answers.at(-1).missing.includes(stream);
    if (lacks) return "missing";
    if (lacked) was = "came later";
  }
  return was;
}

// First answers: after how long they were written, and whether they were exact.
export function firstAnswers(windows) {
  const found = [];
  for (const window of windows) {
    for (const part of window.parts.values()) {
      const first = part.answers[0];
      if (first.label === "tentative" || !first.epoch) {
        found.push({ start: window.start, after: first.after, label: first.label });
      }
    }
  }
  return found;
}

// How wrong the tentative values of one figure were, over the windows that are exact now.
export function earlyErrors(windows, name) {
  const found = { rows: 0, right: 0, gone: 0, compared: 0, sum: 0, greatest: 0 };
  for (const window of windows) {
    for (const part of window.parts.values()) {
      if (part.answers.length < 2 || part.revoked || part.answers.at(-1).label !== "stable") continue;
      const of = judged(part, window.version, name);
      for (const each of Object.keys(found)) {
        found[each] = each === "greatest" ? Math.max(found[each], of[each]) : found[each] + of[each];
      }
    }
  }
  return found;
}

// Computed once for each version of a window: a long failure has many, and few of them change.
function judged(part, version, name) {
  const shape = `${version} ${name}`;
  if (part.judged?.shape === shape) return part.judged;
  const of = (part.judged = { shape, rows: 0, right: 0, gone: 0, compared: 0, sum: 0, greatest: 0 });
  const early = part.answers.findLast((answer) => answer.label === "tentative");
  const exact = part.answers.at(-1);
  if (!early || early.incomplete || exact.incomplete || early.rows_left_off || exact.rows_left_off) return of;
  for (const [key, row] of early.rows) {
    of.rows += 1;
    const now = exact.rows.get(key);
    if (!now) {
      of.gone += 1;
      continue;
    }
    const [was, is] = [figure(row.fields, name), figure(now.fields, name)];
    if (was === is) of.right += 1;
    if (was === null || is === null) continue;
    const error = Math.abs(is - was);
    of.compared += 1;
    of.sum += error;
    of.greatest = Math.max(of.greatest, error);
  }
  return of;
}

// The steps by which the value of one cell came about, in order.
export function history(window, key) {
  const steps = [];
  for (const [number, part] of window.parts) {
    const mine = part.answers.filter((answer) => answer.rows.has(key));
    if (!mine.length) continue;
    for (const answer of mine) {
      const { fields, readings } = answer.rows.get(key);
      steps.push({ ...answer, what: answer.label, part: number, fields, readings });
    }
    for (const undo of part.undone) steps.push({ ...undo, what: "undo", part: number });
  }
  return steps.sort((a, b) => a.seq - b.seq);
}
