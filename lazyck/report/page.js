// The interactive parts of the report: theme, order of the table, timeline, growth chart.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const KINDS = ["compile", "wait", "load", "failure"];

function svg(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// ---- words -------------------------------------------------------------------------------------
const two = (n) => String(n).padStart(2, "0");
const local = (t) => new Date((t + data.offset) * 1000);  // to be read with getUTC...()
const day = (d) => `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}`;
function clock(t, step) {
  const d = local(t);
  const minutes = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`;
  if (step >= 86400 || (step >= 600 && minutes === "00:00")) return day(d).slice(5);
  if (step >= 60) return minutes;
  const seconds = `${minutes}:${two(d.getUTCSeconds())}`;
  if (step >= 1) return seconds;
  return seconds + (d.getUTCMilliseconds() / 1000).toFixed(step >= 0.1 ? 1 : 3).slice(1);
}
function duration(s) {
  if (s < 0.0995) return `${(s * 1000).toFixed(s < 0.00995 ? 1 : 0)} ms`;
  if (s < 99.5) return `${s.toFixed(s < 9.95 ? 2 : 1)} s`;
  if (s < 5970) return `${(s / 60).toFixed(1)} min`;
  return `${(s / 3600).toFixed(1)} h`;
}
function bytes(n) {  // like show_size of quantities.py
  let unit = 0;
  while (n >= 999.5 && unit < 4) { n /= 1024; ++unit; }
  return `${n.toFixed(unit && n < 99.95 ? 1 : 0)} ${["B", "KB", "MB", "GB", "TB"][unit]}`;
}

// ---- theme -------------------------------------------------------------------------------------
const isDark = () => (document.documentElement.dataset.theme ||
  (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function nameTheme() { $("theme").textContent = isDark() ? "☀ Light" : "☾ Dark"; }
$("theme").hidden = false;
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
nameTheme();

// ---- table -------------------------------------------------------------------------------------
function sortBy(header) {
  const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
  const isNumber = header.classList.contains("number");
  const old = header.getAttribute("aria-sort");
  const order = old === "descending" ? "ascending" : old === "ascending" || isNumber ? "descending" : "ascending";
  const sign = order === "ascending" ? 1 : -1;
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].title;
  const rows = [...body.rows].sort((a, b) =>
    sign * (isNumber ? value(a) - value(b) : value(a).localeCompare(value(b))));
  for (const each of header.parentNode.cells) each.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", order);
  const first = data.rows;
  rows.forEach((row, i) => row.classList.toggle("more", i >= first));
  body.append(...rows);
}
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}
if ($("more")) {
  $("more").addEventListener("click", () => { $("blobs").classList.add("all"); $("more").hidden = true; });
}

// ---- ticks of a time axis ----------------------------------------------------------------------
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];
function ticks(start, end, width) {
  const least = (end - start) * 78 / Math.max(width, 78);  // a page may have no width for a moment
  const step = STEPS.find((s) => s >= least) || least;
  const found = [];
  for (let t = Math.ceil((start + data.offset) / step) * step - data.offset; t <= end; t += step) found.push(t);
  return { step, found };
}
function drawAxis(into, start, end, width, baseline, top) {
  const { step, found } = ticks(start, end, width);
  for (const t of found) {
    const x = Math.round((t - start) / (end - start) * width) + 0.5;
    into.append(svg("line", { class: "grid", x1: x, x2: x, y1: top, y2: baseline - 14 }));
    const anchor = x > width - 28 ? "end" : x < 28 ? "start" : "middle";
    into.append(svg("text", { x: anchor === "end" ? width - 3 : anchor === "start" ? Math.max(x, 3) : x, y: baseline,
      "text-anchor": anchor }, clock(t, step)));
  }
}

// ---- timeline ----------------------------------------------------------------------------------
// An event is [lane, thread, start (from t0), seconds, kind, blob, arch, what, KiB, bytes, pid].
// Names are given by their index.
const ROW = 16;
const lanes = data.lanes.map(([name, threads]) => ({ name, threads, events: [], isOpen: false }));
for (const event of data.events) lanes[event[0]].events.push(event);
let view = [0, 1], limits = [0, 1];
const axis = $("axis");

function build() {
  for (const lane of lanes) {
    lane.node = document.createElement("div");
    lane.node.className = "lane";
    lane.label = document.createElement("button");
    lane.label.type = "button";
    lane.label.className = lane.threads > 1 ? "name threads" : "name";
    lane.label.textContent = lane.name;
    lane.label.title = lane.threads > 1 ? `${lane.name}: ${lane.threads} threads` : lane.name;
    lane.label.addEventListener("click", () => { if (lane.threads > 1) { lane.isOpen = !lane.isOpen; draw(); } });
    lane.bars = svg("svg", { role: "img", "aria-label": `${lane.name}, ${lane.events.length} events` });
    lane.node.append(lane.label, lane.bars);
    $("lanes").append(lane.node);
  }
}

function choose(run) {
  const [start, end] = data.runs[run];
  const margin = Math.max((end - start) * 0.015, 0.05);
  limits = [start - margin, end + margin];
  view = [...limits];
  let rows = 0;
  for (const lane of lanes) {
    const own = lane.events.some((e) => e[2] <= limits[1] && e[2] + e[3] >= limits[0]);
    lane.node.hidden = !own;
    lane.node.style.display = own ? "" : "none";
    rows += own ? lane.threads : 0;
  }
  for (const lane of lanes) lane.isOpen = lane.threads > 1 && rows <= 24;
  draw();
}

let isDue = false;
function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; drawNow(); });
}

function drawNow() {
  const width = Math.max(axis.clientWidth, 50);
  axis.setAttribute("viewBox", `0 0 ${width} 26`);
  axis.replaceChildren();
  drawAxis(axis, data.t0 + view[0], data.t0 + view[1], width, 17, 20);
  $("day").textContent = day(local(data.t0 + view[0]));
  for (const lane of lanes) if (!lane.node.hidden) drawLane(lane, width);
}

// Draws bars that would share a pixel as one, so that the work is bounded by what can be seen.
function drawLane(lane, width) {
  const rows = lane.isOpen ? lane.threads : 1, scale = width / (view[1] - view[0]);
  const height = rows * ROW + 8;
  if (lane.threads > 1) lane.label.setAttribute("aria-expanded", lane.isOpen);
  lane.bars.setAttribute("height", height);
  lane.bars.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const ends = new Map(), bars = [[], [], [], []];
  for (const event of lane.events) {
    const [, thread, start, seconds, kind] = event;
    if (start + seconds < view[0] || start > view[1]) continue;
    const row = lane.isOpen ? thread : 0, slot = 4 * row + kind;
    const x = Math.max(-2, (start - view[0]) * scale), end = Math.min(width + 2, (start + seconds - view[0]) * scale);
    const w = Math.max(end - x, kind === 3 ? 4 : 2), last = ends.get(slot);
    if (last && x + w < last.end + 1) continue;
    if (last && last.w <= 2 && x < last.end) { last.w = Math.max(last.w, x + w - last.x); last.end = last.x + last.w;
      continue; }
    const bar = { x, w, end: x + w, row, event };
    bars[kind].push(bar);
    ends.set(slot, bar);
  }
  const all = document.createDocumentFragment();
  // Bars that others could hide are drawn last.
  for (const kind of [1, 0, 2, 3]) for (const { x, w, row, event } of bars[kind]) {
    const y = 4 + row * ROW;
    const [top, tall] = [[1, 14], [5, 6], [11, 4], [0, 16]][kind];
    const bar = svg("rect", { class: `${KINDS[kind]}-bar`, x: x.toFixed(1), y: y + top, width: w.toFixed(1),
      height: tall, rx: w > 5 && kind !== 2 ? 2 : 0 });
    bar.event = event;
    all.append(bar);
  }
  lane.bars.replaceChildren(all);
}

function zoom(factor, at) {
  const least = 0.002, span = Math.min(limits[1] - limits[0], Math.max(least, (view[1] - view[0]) * factor));
  const fixed = view[0] + (view[1] - view[0]) * at;
  view = [fixed - span * at, fixed + span * (1 - at)];
  pan(0);
}
function pan(part) {
  const span = view[1] - view[0];
  const start = Math.min(Math.max(view[0] + part * span, limits[0]), limits[1] - span);
  view = [start, start + span];
  draw();
}

function describe(event) {
  const [lane, , start, seconds, kind, blob, arch, what, kib, size, pid] = event;
  const verb = ["compiled", "waited", "loaded", "failed"][kind];
  const lines = [`${verb} for ${data.words[arch] || "?"}: ${duration(seconds)}`,
    `${day(local(data.t0 + start))} ${clock(data.t0 + start, 0.01)} · ${lanes[lane].name}`];
  if (!lanes[lane].name.includes("pid ")) lines[1] += ` · pid ${pid}`;
  if (kib) lines.push(`peak memory ${bytes(kib * 1024)}`);
  if (size) lines.push(`entry ${bytes(size)}`);
  if (data.words[what]) lines.push((kind === 2 ? "from: " : kind === 1 ? "for: " : "") + data.words[what]);
  return [data.words[blob], lines.join("\n")];
}
function showTip(bar, x, y) {
  const tip = $("tip"), [name, text] = describe(bar.event), bold = document.createElement("b");
  bold.textContent = name;
  tip.replaceChildren(bold, text);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 12, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 16 + box.height > innerHeight ? Math.max(8, y - box.height - 12) : y + 16}px`;
}

function listen() {
  const box = $("timeline");
  let drag = null;
  box.addEventListener("wheel", (e) => {
    const isAxis = axis.contains(e.target), frame = axis.getBoundingClientRect();
    if (!isAxis && !e.ctrlKey && Math.abs(e.deltaX) <= Math.abs(e.deltaY)) return;  // the wheel scrolls the lanes
    e.preventDefault();
    if (isAxis || e.ctrlKey) {
      zoom(Math.exp(e.deltaY * 0.002), Math.min(1, Math.max(0, (e.clientX - frame.left) / frame.width)));
    } else {
      pan(e.deltaX / frame.width);
    }
  }, { passive: false });
  box.addEventListener("pointerdown", (e) => {
    if (e.button === 0 && e.target.closest("svg")) drag = e.clientX;
  });
  addEventListener("pointermove", (e) => {
    if (drag !== null) {
      pan((drag - e.clientX) / axis.clientWidth);
      drag = e.clientX;
    }
    if (e.target.event && drag === null) showTip(e.target, e.clientX, e.clientY);
    else $("tip").hidden = true;
  });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, (e) => {
    drag = null;
    if (e.target.event) showTip(e.target, e.clientX, e.clientY);
  });
  addEventListener("scroll", () => { $("tip").hidden = true; }, true);
  const actions = { in: () => zoom(0.5, 0.5), out: () => zoom(2, 0.5), left: () => pan(-0.3), right: () => pan(0.3),
    all: () => { view = [...limits]; draw(); } };
  for (const [id, act] of Object.entries(actions)) $(`go-${id}`).addEventListener("click", act);
  $("fold").addEventListener("click", () => {
    const isOpen = !lanes.some((lane) => !lane.node.hidden && lane.isOpen);
    for (const lane of lanes) lane.isOpen = isOpen && lane.threads > 1;
    draw();
  });
  $("run").addEventListener("change", () => choose(Number($("run").value)));
  new ResizeObserver(draw).observe(axis);
}

// ---- growth ------------------------------------------------------------------------------------
function drawGrowth() {
  const chart = $("growth"), width = Math.max(chart.clientWidth, 120), height = 190, left = 54, floor = height - 24;
  const steps = data.growth, top = steps[steps.length - 1][1];
  const start = data.span[0], end = Math.max(data.span[1], start + 1);
  const unit = 2 ** Math.ceil(Math.log2(top / 4));
  const inner = width - left - 4;
  const x = (t) => left + (t - start) / (end - start) * inner, y = (n) => floor - n / top * (floor - 14);
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren();
  for (let n = 0; n <= top; n += unit) {
    chart.append(svg("line", { class: "grid", x1: left, x2: width, y1: Math.round(y(n)) + 0.5, y2: Math.round(y(n)) + 0.5 }),
      svg("text", { x: left - 6, y: y(n) + 4, "text-anchor": "end" }, bytes(n)));
  }
  const ruler = svg("g", { transform: `translate(${left} 0)` });
  drawAxis(ruler, data.t0 + start, data.t0 + end, inner, height - 6, floor + 1);
  let path = `M${x(start).toFixed(1)} ${y(0)}`;
  for (const [t, n] of steps) path += `H${x(t).toFixed(1)}V${y(n).toFixed(1)}`;
  path += `H${x(end).toFixed(1)}`;
  chart.append(ruler, svg("path", { class: "area", d: `${path}V${floor}Z` }), svg("path", { d: path }));
}

if ($("timeline")) {
  build();
  choose(Number($("run").value));
  listen();
}
if ($("growth")) {
  drawGrowth();
  new ResizeObserver(drawGrowth).observe($("growth"));
}
})();
