// The two charts of a query: its values, and its first answers against the bound. uPlot draws them;
// failures are bands behind both. Colours come from the style sheet, so they follow the theme.

import { cell, firstAnswers } from "./model.js";
import { band } from "./strip.js";
import { el, number, seconds, short, time } from "./words.js";

export const LINES_MAX = 6;
const HEIGHT = 230;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  constructor(label) {
    this.box = el("div", { class: "chart", role: "img", "aria-label": label });
    this.plot = null;
    this.shape = "";
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.box);
  }

  // Draw again with other data; the chart is only made anew if its series are others.
  draw(shape, options, data) {
    const theme = colour("--ink");
    if (this.plot && this.shape === shape + theme) {
      this.plot.bands_ = options.bands_;
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.shape = shape + theme;
    const width = Math.max(this.box.clientWidth, 200);
    this.plot = new uPlot({ ...options, width, height: HEIGHT }, data, this.box);
    this.plot.bands_ = options.bands_;
    this.plot.setData(data); // a plain redraw at once would leave it without scales
  }

  resize() {
    const width = this.box.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}

export function drawValues(chart, { windows, keys, name, bound }) {
  const shown = keys.slice(0, LINES_MAX);
  const plain = windows.filter((window) => window.count === 1);
  const xs = plain.map((window) => window.start / 1000);
  const data = [xs];
  const series = [{ value: (_, v) => (v == null ? "" : time(v * 1000)) }];
  shown.forEach((key, i) => {
    const cells = plain.map((window) => cell(window, key, name, bound));
    const stroke = colour(`--line-${i + 1}`);
    const is = (state) => (of) => (state.includes(of.state) ? of.value : null);
    data.push(cells.map((of) => (of.empty || of.state === "withdrawn" ? null : of.value)));
    data.push(cells.map(is(["tentative"])));
    data.push(cells.map((of) => (of.state === "withdrawn" ? of.value : of.withdrawn ?? null)));
    const label = short(key, 30);
    series.push({ label, stroke, width: 2, points: { show: plain.length < 80, size: 5, fill: stroke } });
    series.push({ label: `${label} tentative`, stroke, paths: () => null, points: { show: true, size: 9, width: 2, fill: colour("--paper") } });
    series.push({ label: `${label} withdrawn`, stroke: colour("--faint"), paths: () => null, points: { show: true, size: 7, fill: colour("--faint") } });
  });
  chart.draw(`${name}|${shown.join("|")}`, options(series, plain, (v) => number(v)), data);
  const range = plain.length ? `${time(plain[0].start)} to ${time(plain.at(-1).end)}` : "no window yet";
  chart.box.setAttribute("aria-label", `${name} of ${shown.length} keys, ${range}; the table below has the values`);
}

export function drawFirst(chart, { windows, bound }) {
  const answers = firstAnswers(windows);
  const data = [
    answers.map((each) => each.start / 1000),
    answers.map((each) => (each.label === "stable" ? each.after / 1000 : null)),
    answers.map((each) => (each.label === "tentative" ? each.after / 1000 : null)),
    answers.map(() => bound / 1000),
  ];
  const good = colour("--exact");
  const dot = { paths: () => null };
  const series = [
    {},
    { label: "exact", stroke: good, ...dot, points: { show: true, size: 6, fill: good } },
    { label: "tentative", stroke: colour("--tentative"), ...dot, points: { show: true, size: 9, width: 2, fill: colour("--paper") } },
    { label: "bound X", stroke: colour("--late"), width: 1.5, dash: [6, 4], points: { show: false } },
  ];
  chart.draw("first", options(series, windows, (v) => `${v.toFixed(1)} s`), data);
  const worst = Math.max(0, ...answers.map((each) => each.after));
  chart.box.setAttribute("aria-label", `First answers: the latest was written ${seconds(worst)} after it was due, the bound is ${seconds(bound)}`);
}

function options(series, windows, format) {
  const axis = {
    stroke: colour("--soft"),
    grid: { stroke: colour("--rule"), width: 1 },
    ticks: { stroke: colour("--rule"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  return {
    bands_: windows.filter((window) => band(window) !== "none"),
    series,
    legend: { show: false },
    cursor: { y: false, points: { show: false } },
    scales: { x: { time: true } },
    axes: [
      { ...axis, size: 32, values: (_, ticks) => ticks.map((tick) => time(tick * 1000)), space: 80 },
      { ...axis, size: 58, values: (_, ticks) => ticks.map(format) },
    ],
    padding: [12, 28, 0, 0],
    hooks: {
      drawClear: [
        (plot) => {
          plot.ctx.fillStyle = colour("--band");
          for (const window of plot.bands_ ?? []) {
            const from = plot.valToPos(window.start / 1000, "x", true);
            const to = plot.valToPos(window.end / 1000, "x", true);
            const left = Math.max(from, plot.bbox.left);
            const right = Math.min(to, plot.bbox.left + plot.bbox.width);
            if (right > left) plot.ctx.fillRect(left, plot.bbox.top, right - left, plot.bbox.height);
          }
        },
      ],
    },
  };
}
