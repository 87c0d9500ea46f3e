// Texts and elements. All text goes through textContent, so whatever a key contains is text.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null).map(textOrNode));
  return made;
}

const textOrNode = (child) => (child instanceof Node ? child : document.createTextNode(`${child}`));

export const time = (at) => (at == null ? "–" : new Date(at).toISOString().slice(11, 19));

export const number = (value) => {
  if (value == null) return "·";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3 ? value.toExponential(3) : value.toFixed(2);
};

export const seconds = (value) =>
  Math.abs(value) < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;

export const short = (key, most = 40) => (key.length > most ? `${key.slice(0, most - 1)}…` : key);

export const STATES = {
  exact: "exact",
  corrected: "exact, corrected",
  tentative: "tentative",
  withdrawn: "withdrawn, the exact one follows",
  skipped: "overdue, not computed yet",
  unknown: "read from the middle",
  due: "due",
};
