"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;

// The colours of Okabe and Ito, which differ for every kind of colour vision; lines also differ in dashes, points in shape.
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x"];
const style = i => ({ color: COLOURS[i % COLOURS.length], dash: DASHES[i % DASHES.length], symbol: SYMBOLS[i % SYMBOLS.length] });

const known = values => values.some(value => value !== null);
const last = values => values.findLast(value => value !== null) ?? null;
const median = values => {
  const sorted = values.filter(value => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
};
const least = values => values.reduce((a, b) => b !== null && (a === null || b < a) ? b : a, null);
const most = values => values.reduce((a, b) => b !== null && (a === null || b > a) ? b : a, null);

const fixed = digits => value => value === null ? "–" : value.toFixed(digits);
function count(value) {
  if (value === null) return "–";
  for (const [size, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) if (value >= 0.9995 * size) return (value / size).toPrecision(3) + unit;
  return value.toPrecision(3).replace(/\.0+$/, "");
}
function duration(seconds) {
  if (seconds === null) return "–";
  const s = Math.round(seconds), two = n => String(n).padStart(2, "0");
  return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${two(s % 60)} s` : `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
}
const percent = value => value === null ? "–" : (100 * value).toFixed(1) + " %";

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function key(i) {
  const { color, dash } = style(i);
  const dashes = { solid: "none", dash: "8 5", dot: "2 4", dashdot: "8 4 2 4", longdash: "14 5" }[dash];
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "key");
  svg.setAttribute("height", "10");
  svg.innerHTML = `<line x1="0" x2="34" y1="5" y2="5" stroke="${color}" stroke-width="3" stroke-dasharray="${dashes}"/>`;
  return svg;
}

// ---- figures

// Name, value of a run, its text, and which is better: -1 the least, 1 the most, 0 neither.
const FIGURES = [
  ["parameters", run => run.total_parameters, count, 0],
  ["active", run => run.active_parameters, count, 0],
  ["FLOPs/token", run => run.flops_per_token, count, 0],
  ["tokens", run => last(run.tokens), count, 0],
  ["train loss", run => last(run.loss), fixed(4), 0],
  ["val. loss", run => last(run.val_loss), fixed(4), -1],
  ["bits per byte", run => last(run.val_bpb), fixed(4), -1],
  ["tok/s", run => median(run.tok_s), count, 1],
  ["MFU", run => median(run.mfu), percent, 1],
  ["GiB", run => most(run.mem_gib), fixed(1), -1],
  ["step time", run => last(run.seconds), duration, -1],
  ["skipped steps", run => last(run.nonfinite_steps), count, 0],
];

function progress(run) {
  const step = last(run.step);
  return step === null ? "no step yet" : step < run.total_steps ? `step ${step} of ${run.total_steps}` : `${step} steps, complete`;
}

function showSummary() {
  const table = element("table"), head = element("tr"), body = element("tbody");
  const shown = FIGURES.filter(([name, value]) => runs.some(run => value(run) !== null && !(name === "skipped steps" && value(run) === 0)));
  head.append(element("th", "run"), element("th", "progress"), ...shown.map(([name]) => element("th", name)));
  const best = shown.map(([, value, , sign]) => sign === 0 || runs.length < 2 ? null : sign * most(runs.map(run => value(run) === null ? null : sign * value(run))));
  runs.forEach((run, i) => {
    const row = element("tr"), name = element("td");
    name.append(key(i), run.name);
    row.append(name, element("td", progress(run)));
    shown.forEach(([, value, text], j) => row.append(element("td", text(value(run)), best[j] !== null && value(run) === best[j] ? { class: "best" } : {})));
    body.append(row);
  });
  const thead = element("thead");
  thead.append(head);
  table.append(thead, body);
  document.getElementById("summary").append(table);
}

// ---- comparisons

const share = (row, key, part, text) => row[key] === null ? "not reached" : `${text(row[key])} (${row[part].toFixed(3)})`;
const COMPARED = [
  ["validation loss", row => fixed(4)(row.val_loss) + (row.val_loss_min === row.val_loss_max ? "" : ` (${fixed(4)(row.val_loss_min)} to ${fixed(4)(row.val_loss_max)})`)],
  ["above the first", row => fixed(4)(row.val_loss_above_first)],
  ["bits per byte", row => fixed(4)(row.val_bpb)],
  ["tokens", row => count(row.tokens)],
  ["tokens to the first's loss", row => share(row, "tokens_to_first_loss", "tokens_share", count)],
  ["time to the first's loss", row => share(row, "seconds_to_first_loss", "seconds_share", duration)],
  ["tok/s while training", row => count(row.trained_tok_s)],
  ["tok/s in blocks", row => count(row.tok_s)],
  ["ms per step", row => fixed(1)(row.step_ms)],
  ["MFU", row => percent(row.mfu)],
  ["GiB", row => row.peak_gib === null ? "–" : row.peak_gib.toPrecision(3)],
  ["parameters", row => count(row.total_parameters)],
  ["active", row => count(row.active_parameters)],
  ["FLOPs/token", row => count(row.flops_per_token)],
  ["largest load", row => fixed(2)(row.load_max_mean)],
];

function showComparisons() {
  const section = document.getElementById("comparisons");
  for (const { path, sweep, failed, rows } of data.comparisons) {
    section.append(element("h2", "Comparison"));
    section.append(element("p", rows.length ? `${path}; time is that of training steps. In the blocks, before training, the models alternate.` : `${path}: not complete yet.`));
    for (const run of failed) section.append(element("p", `Failed: ${run}`));
    if (!rows.length) continue;
    const table = element("table"), head = element("thead"), names = element("tr"), body = element("tbody");
    names.append(element("th"), ...rows.map(row => element("th", row.name)));
    head.append(names);
    for (const [name, text] of [...(sweep ? [[`best ${sweep}`, row => row.best]] : []), ...COMPARED]) {
      const texts = rows.map(text), line = element("tr");
      if (texts.every(cell => cell === "–")) continue;
      line.append(element("td", name), ...texts.map(cell => element("td", cell)));
      body.append(line);
    }
    table.append(head, body);
    const box = element("div", "", { class: "scroll" });
    box.append(table);
    section.append(box);
  }
}

// ---- charts

const FONT = { family: 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif', size: 13, color: "#1b1f24" };
const AXIS = { gridcolor: "#e8ebee", linecolor: "#8a939c", zeroline: false, ticks: "outside", tickcolor: "#8a939c" };

function draw(parent, title, traces, xTitle, yTitle, options = {}) {
  const box = element("div", "", { class: options.low ? "chart low" : "chart" });
  document.getElementById(parent).append(box);
  const layout = {
    title: { text: title, font: { ...FONT, size: 16 }, x: 0, xref: "paper", xanchor: "left" },
    font: FONT, margin: { l: 64, r: 16, t: 44, b: 48 }, paper_bgcolor: "#fff", plot_bgcolor: "#fff",
    xaxis: { ...AXIS, title: { text: xTitle }, ...options.x }, yaxis: { ...AXIS, title: { text: yTitle }, ...options.y },
    showlegend: traces.length > 1 && options.legend !== false, legend: { x: 1, y: 1, xanchor: "right", yanchor: "top", bgcolor: "rgba(255,255,255,0.8)" },
    hovermode: "closest",
  };
  Plotly.newPlot(box, traces, layout, { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"] });
}

const AXES = { tokens: ["tokens", "trained tokens"], seconds: ["seconds", "time in training steps, s"] };

function line(run, i, values, x, extra = {}) {
  const points = run[x].map((at, j) => [at, values[j]]).filter(point => point[1] !== null);
  const { color, dash } = style(i);
  return { name: run.name, mode: "lines", line: { color, dash, width: 2 }, x: points.map(point => point[0]), y: points.map(point => point[1]), ...extra };
}

function validation(run, i, values, x) {
  const { color, dash, symbol } = style(i);
  return line(run, i, values, x, { name: `${run.name}, validation`, mode: "lines+markers", line: { color, dash, width: 2.5 }, marker: { color, symbol, size: 7 } });
}

/// The steep beginning would press the rest of a curve together: its first twentieth stays outside until one zooms out.
function lossRange(run) {
  const begin = Math.floor(run.loss.length / 20);
  const shown = [...run.loss.slice(begin), ...run.val_loss.slice(begin)];
  const low = least(shown), high = most(shown);
  return run.loss.length >= 20 && high > low ? [low - 0.06 * (high - low), high + 0.06 * (high - low)] : null;
}

function drawLosses() {
  for (const x of ["tokens", "seconds"]) {
    const traces = [];
    runs.forEach((run, i) => {
      const validated = known(run.val_loss);
      traces.push(line(run, i, run.loss, x, validated ? { opacity: 0.4, line: { ...style(i), width: 1.2 }, name: `${run.name}, training` } : {}));
      if (validated) traces.push(validation(run, i, run.val_loss, x));
    });
    const ranges = runs.map(lossRange).filter(Boolean);
    const range = ranges.length ? { range: [least(ranges.map(r => r[0])), most(ranges.map(r => r[1]))] } : {};
    draw("charts", x === "tokens" ? "Loss against tokens" : "Loss against time", traces, AXES[x][1], "nats per token", { y: range });
  }
}

function drawCurves() {
  document.getElementById("charts").append(element("h2", "Curves"));
  drawLosses();
  if (runs.some(run => known(run.val_bpb)))
    for (const x of ["tokens", "seconds"])
      draw("charts", `Validation, against ${x === "tokens" ? "tokens" : "time"}`, runs.filter(run => known(run.val_bpb)).map(run => validation(run, runs.indexOf(run), run.val_bpb, x)), AXES[x][1], "bits per byte");
  const curves = [["Speed", "tok_s", "tokens per second", { rangemode: "tozero" }], ["Memory", "mem_gib", "peak, GiB", { rangemode: "tozero" }],
    ["Gradient norm, before clipping", "grad_norm", "", { type: "log" }], ["Learning rate", "lr", "", { rangemode: "tozero", exponentformat: "e" }],
    ["Largest load of an expert", "load_max_mean", "times the mean", {}]];
  for (const [title, name, unit, y] of curves) {
    const shown = runs.filter(run => known(run[name]) && (name !== "load_max_mean" || run.routers.length));
    if (shown.length) draw("charts", title, shown.map(run => line(run, runs.indexOf(run), run[name], "tokens")), AXES.tokens[1], unit, { low: true, y });
  }
  for (const task of new Set(runs.flatMap(run => Object.keys(run.tasks))))
    draw("charts", `Task ${task}`, runs.filter(run => run.tasks[task]).map(run => validation(run, runs.indexOf(run), run.tasks[task], "tokens")), AXES.tokens[1], "accuracy, normalised by length", { low: true });
}

function drawLoads() {
  const routed = runs.filter(run => run.routers.length);
  if (!routed.length) return;
  const section = document.getElementById("loads");
  section.append(element("h2", "Load of the experts"), element("p", "The load of the busiest expert of each layer, relative to the mean: 1 is perfect balance."));
  for (const run of routed) {
    const z = run.routers.map(router => router.load_max_mean);
    draw("loads", run.name, [{ type: "heatmap", x: run.tokens, y: run.routers.map(router => router.name), z, zmin: 1, colorscale: "Cividis", colorbar: { title: { text: "load" }, thickness: 14 },
      hovertemplate: "%{y}<br>%{x} tokens<br>load %{z:.2f}<extra></extra>" }], AXES.tokens[1], "", { legend: false, y: { automargin: true, ticks: "", autorange: "reversed", dtick: 1, ...(z.length > 16 ? { dtick: Math.ceil(z.length / 16) } : {}) } });
  }
}

// ---- configurations

function showConfigurations() {
  const section = document.getElementById("differences");
  if (runs.length > 1) {
    section.append(element("h2", "What differs"));
    const equal = !data.differences.length;
    if (equal) section.append(element("p", "The configurations are equal."));
    const table = element("table"), head = element("tr");
    head.append(element("th", "key"), ...runs.map(run => element("th", run.name)));
    table.append(head);
    for (const { key: name, values } of data.differences) {
      const row = element("tr");
      row.append(element("td", name), ...values.map(value => element("td", value)));
      table.append(row);
    }
    const box = element("div", "", { class: "scroll" });
    if (!equal) box.append(table);
    section.append(box);
  }
  const all = document.getElementById("configurations");
  all.append(element("h2", "Configurations and machines"));
  for (const run of runs) {
    const details = element("details");
    details.append(element("summary", `${run.name}: ${run.model}${run.environment ? `; ${run.environment}` : ""}`), element("p", run.path), element("pre", run.config));
    all.append(details);
  }
}

document.title = runs.map(run => run.name).join(", ");
document.getElementById("title").textContent = runs.map(run => run.name).join(" · ");
document.getElementById("origin").textContent = `Written ${data.written} by scatterlm ${data.version}.`;
showComparisons();
showSummary();
drawCurves();
drawLoads();
showConfigurations();
