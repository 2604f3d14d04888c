// Sections of campaigns: every tolerance beside the others, limits, readings, cases, provenance.

const OURS = "gonogo";
const NAMED = { gonogo: 0, paper: 1, current: 2, torch_testing: 3, kernelbench: 4, flash_attention: 5 };
const BINS = ["all", "differing", "manifest"], KINDS = ["missed", "control"];
const DTYPES = ["float16", "bfloat16", "float32"]; // and whatever else there is, in the order it comes
function colourOf(dtype) {
  if (!DTYPES.includes(dtype)) DTYPES.push(dtype);
  return DTYPES.indexOf(dtype) % 7;
}

class Records {
  constructor(told) {
    Object.assign(this, told);
    this.methods = told.methods.map((method) => decodeMethod(method, told.groups.rows));
    const { groups } = told.coarse;
    this.sweep = told.coarse.sweep.map((method) => decodeMethod(method, groups.rows));
    this.holdouts = told.coarse.holdouts.map((method) => decodeMethod(method, groups.rows));
    this.ops = [...told.names.op].sort();
    this.dtypes = [...told.names.dtype].sort((a, b) => colourOf(a) - colourOf(b));
    this.cuda = new Set(told.runs.filter((run) => run.is_cuda).map((run) => run.device));
  }

  // A kernel by its name, which several ops may have.
  kernelOf(name, op = state.op) {
    return this.kernels.find((kernel) => kernel.name === name && (!op || kernel.op === op));
  }

  // What each part of the state may be.
  get options() {
    const kernels = this.kernels.map((kernel) => kernel.name);
    return { op: ["", ...this.ops], dtype: ["", ...this.dtypes], distribution: ["", ...this.names.distribution], device: ["", ...this.names.device],
             kernel: ["", ...kernels], bin: BINS, gauge: this.gauges, kind: KINDS, shown: ["", ...this.ops] };
  }

  // Nothing is filtered.
  get isWhole() { return FILTERS.every((name) => !state[name]); }

  inBin(bin) {
    const { control, identical, manifest } = this.classes;
    return { control: (c) => c === control, all: (c) => c >= identical, differing: (c) => c > identical,
             manifest: (c) => c >= manifest }[bin];
  }

  // Counts of every method on what is chosen; rates of the whole are those of `gonogo evaluate`.
  scores() {
    const mask = chooseGroups(this.groups, this.merged, this.names), classes = this.groups.class;
    return this.methods.map((method) => {
      const told = this.isWhole ? this.evaluation.policies.find((each) => each.name === method.name) : null;
      const controls = sum(method, mask, classes, this.inBin("control"));
      const bins = Object.fromEntries(BINS.map((bin) => [bin, sum(method, mask, classes, this.inBin(bin))]));
      const manifest = bins.manifest;
      return {
        name: method.name, how: method.gauge === "policy" ? "policy" : `${method.gauge} × ${method.rule}`, controls, bins,
        fp: told ? told.fp_rate : rate(controls.flagged, controls.cases),
        fpUpper: told ? told.fp_upper95 : upper(controls.flagged, controls.cases),
        recall: told ? told.recall_manifest : rate(manifest.flagged, manifest.cases),
        recallInterval: told ? told.recall_manifest_interval : interval(manifest.flagged, manifest.cases),
        noGo: told ? told.recall_no_go_manifest : rate(manifest.noGo, manifest.cases),
        differing: told ? told.recall_differing : rate(bins.differing.flagged, bins.differing.cases),
        all: told ? told.recall_all : rate(bins.all.flagged, bins.all.cases),
      };
    });
  }
}

const tellScore = (s) => `${s.name}\nfalse positives ${count(s.controls.flagged)} of ${count(s.controls.cases)}`
  + ` (at most ${percent(s.fpUpper, 3)} with 95 % confidence)\nmanifest faults flagged ${count(s.bins.manifest.flagged)}`
  + ` of ${count(s.bins.manifest.cases)}, ${percent(s.recall)}`;

function drawHeadline(records, scores) {
  const shown = scores.filter((s) => s.controls.cases || s.bins.manifest.cases);
  const cards = ["gonogo", "paper", "current"].map((name) => scores.find((s) => s.name === name)).filter(Boolean).map((s) => h("div",
    { class: "card" + (s.name === OURS ? " first" : "") },
    h("small", {}, { gonogo: "gonogo’s limits", paper: "the paper’s rule", current: "hand-picked tolerances" }[s.name]),
    h("b", {}, `${percent(s.recall)} caught`),
    h("small", {}, `of ${count(s.bins.manifest.cases)} manifest faults`),
    h("b", {}, `${count(s.controls.flagged)} false alarms`),
    h("small", {}, `of ${count(s.controls.cases)} correct results: at most ${percent(s.fpUpper, 3)}`)));
  const plotted = shown.filter((s) => s.fp !== null && s.recall !== null);
  const figure = chart("False-positive rate of every policy, on a logarithmic axis, against its recall of manifest faults", 430, (svg, width) => {
    const narrow = width < 620, box = { left: 52, right: width - (narrow ? 12 : 130), top: 44, bottom: 380 };
    const least = Math.min(1e-4, ...plotted.map((s) => s.fp || s.fpUpper)) / 3;
    const lowest = Math.max(0, Math.floor(10 * Math.min(0.9, ...plotted.map((s) => s.recallInterval[0]))) / 10);
    const x = scale(least, 1, box.left + 26, box.right, true), y = scale(lowest, 1, box.bottom, box.top, false);
    const place = (s) => s.fp ? x(s.fp) : box.left + 10;
    svg.append(...frame(box, x, y, { xTick: power, yTick: (t) => percent(t, 0), x: "false-positive rate (0 at the left)",
                                     y: "manifest faults flagged" }).filter(Boolean),
      h("text", { class: "soft", x: box.left + 10, y: box.bottom + 16, "text-anchor": "middle" }, "0"));
    const ordered = [...plotted].sort((a, b) => (a.name in NAMED) - (b.name in NAMED));
    for (const s of ordered) {
      const colour = NAMED[s.name] ?? 6, [low, high] = s.recallInterval;
      svg.append(h("line", { class: "s" + colour, x1: place(s), x2: x(s.fpUpper), y1: y(s.recall), y2: y(s.recall), opacity: 0.7 }),
        h("line", { class: "s" + colour, x1: place(s), x2: place(s), y1: y(low), y2: y(high), opacity: 0.7 }),
        mark(colour, place(s), y(s.recall), s.name === OURS ? 7 : 5, told(tellScore(s), { class: "k" + colour + " mark", tabindex: 0,
          role: "img", "aria-label": tellScore(s), "data-policy": s.name })));
    }
    placeLabels(svg, [...ordered].reverse().map((s) => ({ x: place(s), y: y(s.recall), words: s.name, colour: NAMED[s.name] ?? 6 })), { ...box, limit: width });
  });
  const caught = (bin) => ({ name: `${bin} flagged`, value: (s) => s[bin === "manifest" ? "recall" : bin],
    show: (s) => percent(s[bin === "manifest" ? "recall" : bin]) });
  const table = makeTable([
    { name: "policy", value: (s) => s.name, show: (s) => s.name }, { name: "gauge × rule", class: "text", value: (s) => s.how, show: (s) => s.how },
    { name: "false positives", value: (s) => s.controls.flagged, show: (s) => `${count(s.controls.flagged)}/${count(s.controls.cases)}` },
    { name: "rate", value: (s) => s.fp, show: (s) => percent(s.fp, 3) },
    { name: "at most (95 %)", value: (s) => s.fpUpper, show: (s) => percent(s.fpUpper, 3) },
    caught("all"), caught("differing"), caught("manifest"),
    { name: "95 % interval", value: (s) => s.recallInterval?.[0], show: (s) => s.recallInterval ? s.recallInterval.map((v) => percent(v)).join(" … ") : "–" },
    { name: "manifest no-go", value: (s) => s.noGo, show: (s) => percent(s.noGo) },
    { name: "manifest cases", value: (s) => s.bins.manifest.cases, show: (s) => count(s.bins.manifest.cases) },
  ], shown, { caption: `All policies, ${records.how}`, mark: (s) => s.name === OURS ? "ours" : null });
  return section("headline", "What each tolerance costs and catches",
    `Left is quiet on correct kernels, up is sharp on faulty ones. ${records.how[0].toUpperCase() + records.how.slice(1)}; policies of the field are `
    + "as they stand. Manifest: a fault of two units of rounding or more. Bars are 95 % intervals.",
    h("div", { class: "cards" }, cards), figure, table);
}

function drawTightening(records) {
  const cells = records.tightening.filter((cell) => {
    const of = records.kernelOf(cell.kernel, ""), chosen = records.kernelOf(state.kernel);
    return (!state.op || of?.op === state.op) && (!state.dtype || cell.dtype === state.dtype)
      && (!state.kernel || cell.kernel === state.kernel || chosen?.against === cell.kernel);
  }).map((cell) => ({ ...cell, factor: cell.calibrated ? cell.current / cell.calibrated : null }))
    .sort((a, b) => (b.factor ?? Infinity) - (a.factor ?? Infinity));
  const most = Math.max(10, ...cells.map((cell) => cell.factor ?? 1)) * 2, fewest = Math.min(1, ...cells.map((cell) => cell.factor ?? 1));
  const figure = chart("Hand-picked tolerance over calibrated tolerance, one bar for each control and dtype", 0, (svg, width) => {
    const step = 19, box = { left: Math.min(250, width * 0.45), right: width - 50, top: 12, bottom: 16 + step * Math.max(1, cells.length) };
    const x = scale(fewest, most, box.left, box.right, true);
    svg.append(...frame(box, x, null, { xTick: (t) => power(t) + "×", x: "current atol / calibrated atol" }).filter(Boolean));
    cells.forEach((cell, at) => {
      const end = cell.factor === null ? box.right : x(cell.factor), y = box.top + at * step;
      const words = `${cell.kernel} ${cell.dtype}: current ${number(cell.current)}, calibrated ${cell.calibrated ? number(cell.calibrated) : "exact"}`
        + (cell.factor ? `, ${number(cell.factor)}×` : "");
      svg.append(h("rect", told(words, { class: `k${colourOf(cell.dtype)} mark`, x: Math.min(x(1), end), y: y + 3, height: step - 6, rx: 2,
        width: Math.max(1.5, Math.abs(end - x(1))) })),
        h("text", { x: box.left - 6, y: y + step - 6, "text-anchor": "end" }, fit(`${cell.kernel} ${width < 620 ? cell.dtype.replace("loat", "") : cell.dtype}`, box.left - 10)),
        h("text", { class: "soft", x: end + 4, y: y + step - 6 }, cell.factor === null ? "exact" : number(+cell.factor.toPrecision(3)) + "×"));
    });
    return box.bottom + 44;
  });
  const table = makeTable([
    { name: "control", value: (c) => c.kernel, show: (c) => c.kernel }, { name: "dtype", class: "text", value: (c) => c.dtype, show: (c) => c.dtype },
    { name: "cases", value: (c) => c.cases }, { name: "current atol", value: (c) => c.current }, { name: "calibrated atol", value: (c) => c.calibrated },
    { name: "tightening", value: (c) => c.factor ?? Infinity, show: (c) => c.factor === null ? "exact" : number(c.factor) + "×" },
  ], cells, { caption: "p95 × 1.5 of what controls read, beside the hand-picked atol", tall: cells.length > 20 });
  return section("tightening", "How much tighter a measured tolerance is",
    "The hand-picked atol of each control over the one that the paper’s rule makes of its readings; to the right of 1 the hand-picked one is looser. "
    + "Distribution and device do not act here.", cells.length ? [legend(records.dtypes.map((d) => [d, colourOf(d), 1])), figure, behind(() => table)]
      : h("p", {}, "No control here has a hand-picked tolerance."));
}

function drawHeatMap(records, update) {
  const mask = chooseGroups(records.groups, records.merged, records.names), { op: ops, kernel: kernels, class: classes } = records.groups;
  const wanted = records.inBin(state.bin), lines = new Map(), isMerged = records.merged.includes("kernel");
  records.methods.forEach((method, column) => {
    for (let at = 0; at < mask.length; at++) {
      if (!mask[at] || !wanted(classes[at])) continue;
      const key = ops[at] * records.names.kernel.length + kernels[at];
      if (!lines.has(key)) lines.set(key, records.methods.map(() => [0, 0]));
      const cell = lines.get(key)[column];
      cell[0] += method.flagged[at];
      cell[1] += method.judged[at];
    }
  });
  const { length } = records.names.kernel;
  const ordered = (isMerged ? [] : [...lines]).map(([key, cells]) => ({ name: records.names.kernel[key % length], op: records.names.op[Math.floor(key / length)], cells }))
    .sort((a, b) => a.op.localeCompare(b.op) || a.name.localeCompare(b.name));
  const cell = ([part, whole], policy, kernel) => {
    if (!whole) return h("td", { class: "none" }, "·");
    const share = part / whole, light = share < 0.5; // no shade between, on which neither ink nor paper could be read
    const words = `${kernel} by ${policy}: ${count(part)} of ${count(whole)} ${state.bin} cases flagged`;
    return h("td", { title: words, "data-part": part, "data-whole": whole,
      style: `background: rgba(var(--heat), ${(light ? 0.06 + 0.7 * share : 0.7 + 0.28 * share).toFixed(3)}); color: ${light ? "var(--ink)" : "var(--paper)"}` },
      part === whole ? "100" : part === 0 ? "0" : (100 * share).toFixed(share > 0.99 ? 1 : 0));
  };
  const table = h("table", { class: "heat" }, h("caption", {}, `% of ${state.bin} cases flagged; ${ordered.length} faulty kernels × ${records.methods.length} policies`),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "faulty kernel"),
      records.methods.map((m) => h("th", { scope: "col" }, h("span", { class: "slant" }, m.name))))),
    h("tbody", {}, ordered.map((line) => h("tr", { "data-kernel": line.name }, h("th", { scope: "row" },
      h("button", { type: "button", "aria-pressed": String(state.kernel === line.name), "data-filter": `kernel ${line.name}`, onclick: () =>
        update({ kernel: state.kernel === line.name ? "" : line.name, op: line.op }) }, line.name)),
      line.cells.map((each, at) => cell(each, records.methods[at].name, line.name))))));
  return section("recall", "Which faulty kernels each tolerance sees",
    "Darker is better. Identical cases, whose bits are the control’s, no tolerance can flag: they are in “all” only. A click on a kernel filters the page to it.",
    h("div", { class: "row" }, pick("bin", BINS, state.bin, (bin) => update({ bin })),
      pick("dtype", ["", ...records.dtypes], state.dtype, (dtype) => update({ dtype }))),
    ordered.length ? h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Recall per faulty kernel" }, table)
      : h("p", {}, isMerged ? "There are too many kernels for one page: they are not told apart." : "No faulty kernel was run on what is chosen."));
}

// The kernels of an op with the readings of the sample that are chosen, controls first.
function gatherReadings(records, op) {
  const { readings, names } = records, points = new Map();
  for (let at = 0; at < readings.kernel.length; at++) {
    if (names.op[readings.op[at]] !== op) continue;
    if (!["dtype", "distribution", "device"].every((name) => !state[name] || names[name][readings[name][at]] === state[name])) continue;
    const kernel = names.kernel[readings.kernel[at]], x = readingOf(readings[state.gauge][at]);
    if (x === null || (state.kernel && kernel !== state.kernel && records.kernelOf(kernel, op)?.role !== "control")) continue;
    if (!points.has(kernel)) points.set(kernel, []);
    points.get(kernel).push({ x, dtype: names.dtype[readings.dtype[at]] });
  }
  return [...points].map(([name, values]) => ({ ...records.kernelOf(name, op), values }))
    .sort((a, b) => (a.role === "control" ? 0 : 1) - (b.role === "control" ? 0 : 1) || a.name.localeCompare(b.name));
}

// The limits that a kernel is held to in a gauge: its op's own, or those for all ops.
function findLimits(records, op, row, gauge) {
  const fits = (limit) => limit.gauge === gauge && (!state.dtype || !limit.dtype || limit.dtype === state.dtype);
  const contracts = Object.values(row.contracts), control = row.role === "control" ? row.name : row.against;
  const own = records.limits.filter((limit) => fits(limit) && limit.op === op && (limit.kernel ? limit.kernel === control : contracts.includes(limit.contract)));
  return own.length ? own : records.limits.filter((limit) => fits(limit) && limit.op === records.every_op && contracts.includes(limit.contract));
}

// From where to where: around the limits, or what controls read; what is further off stands at the edge.
const BELOW = 1e4, ABOVE = 1e5;
function findRange(rows, limits) {
  const positive = rows.flatMap((row) => row.values.map((p) => p.x)).filter((x) => x > 0 && Number.isFinite(x)).sort((a, b) => a - b);
  if (!positive.length) return null;
  const middle = limits.length ? Math.max(...limits) : positive[Math.floor(positive.length / 2)];
  return [Math.max(Math.min(positive[0], ...limits), middle / BELOW) / 1.5, Math.min(Math.max(positive.at(-1), ...limits), middle * ABOVE) * 1.5];
}

function drawStrips(records, op, rows, gauge, [low, high]) {
  return chart(`Readings of kernels of ${op} in the gauge ${gauge}, controls above, faulty ones below, with their limits`, 0, (svg, width) => {
    const step = 26, left = Math.min(270, width * 0.42), box = { left: left + 22, right: width - 14, top: 20, bottom: 26 + step * rows.length };
    const x = scale(low, high, box.left, box.right, true);
    svg.append(...frame(box, x, null, { xTick: power, x: `${gauge} reading; at the edges 0, and beyond` }).filter(Boolean));
    rows.forEach((row, at) => {
      const middle = box.top + 6 + at * step + step / 2;
      svg.append(h("text", told(row.name, { x: left, y: middle + 4, "text-anchor": "end", class: row.role === "control" ? "" : "soft" }), fit(row.name, left)));
      for (const p of row.values) {
        const colour = colourOf(p.dtype), y = middle + (colour - 1) * 6;
        const place = p.x > high ? box.right + 7 : p.x < low ? box.left - 8 : x(p.x);
        svg.append(mark(row.role === "control" ? 0 : 2, place, y, 2.4, { class: `k${colour} dot` }));
      }
      for (const limit of findLimits(records, op, row, gauge)) {
        const dy = limit.dtype ? (colourOf(limit.dtype) - 1) * 6 : 0, half = limit.dtype ? 4 : step / 2 - 1;
        const words = `limit ${number(limit.value)} of ${limit.op === records.every_op ? "all ops" : limit.op}, ${limit.contract}${limit.dtype ? ", " + limit.dtype : ""}: ${limit.rule} of ${count(limit.cases)} cases`;
        svg.append(h("line", told(words, { class: "limit", x1: x(limit.value || low), x2: x(limit.value || low), y1: middle + dy - half, y2: middle + dy + half })));
      }
    });
    return box.bottom + 44;
  });
}

function drawReadings(records, update) {
  const op = state.op || records.kernelOf(state.kernel)?.op || state.shown || records.ops[0], { gauge } = state, { readings } = records;
  const rows = gatherReadings(records, op), limits = [...new Set(rows.flatMap((row) => findLimits(records, op, row, gauge)))];
  const range = findRange(rows, limits.map((limit) => limit.value).filter((value) => value > 0));
  const table = limits.length ? makeTable([
    { name: "limit", value: (l) => l.kernel ?? l.op, show: (l) => l.op === records.every_op ? "all ops" : l.kernel ?? l.op }, { name: "contract", class: "text", value: (l) => l.contract, show: (l) => l.contract },
    { name: "dtype", class: "text", value: (l) => l.dtype ?? "", show: (l) => l.dtype ?? "all" }, { name: "rule", class: "text", value: (l) => l.rule, show: (l) => l.rule },
    { name: "value", value: (l) => l.value }, { name: "worst control", value: (l) => l.worst }, { name: "cases", value: (l) => l.cases, show: (l) => count(l.cases) },
    { name: "false positives at most", value: (l) => l.fp_upper95, show: (l) => percent(l.fp_upper95, 3) },
  ], limits, { caption: `Limits of ${op} in the gauge ${gauge}` }) : h("p", { class: "note" }, `No limit of ${op} is in the gauge ${gauge}: gonogo’s are in bound, the paper’s in absolute.`);
  return section("readings", "What kernels read, and where the limit is",
    `A sample: ${count(readings.kernel.length)} of ${count(readings.of)} readings, the largest of each kernel, dtype and device among them. `
    + "Round: controls. Triangles: faulty kernels. Upright bars: limits.",
    h("div", { class: "row" }, choose("op shown", records.ops, op, (shown) => update(state.op || state.kernel ? { shown, op: shown, kernel: "" } : { shown })),
      choose("gauge", records.gauges, gauge, (g) => update({ gauge: g }))),
    legend(records.dtypes.map((d) => [d, colourOf(d), 0])),
    range ? [drawStrips(records, op, rows, gauge, range), behind(() => tabulateReadings(rows, gauge), "The sample as a table")] : h("p", {}, "No reading of what is chosen is above 0."), table);
}

function tabulateReadings(rows, gauge) {
  const lines = rows.flatMap((row) => DTYPES.map((dtype) => ({ row, dtype, values: row.values.filter((p) => p.dtype === dtype).map((p) => p.x).sort((a, b) => a - b) })))
    .filter((line) => line.values.length);
  return makeTable([{ name: "kernel", value: (l) => l.row.name, show: (l) => l.row.name }, { name: "role", class: "text", value: (l) => l.row.role, show: (l) => l.row.role },
    { name: "dtype", class: "text", value: (l) => l.dtype, show: (l) => l.dtype }, { name: "readings", value: (l) => l.values.length },
    { name: "median", value: (l) => l.values[Math.floor(l.values.length / 2)] }, { name: "largest", value: (l) => l.values.at(-1) }],
  lines, { caption: `Readings in the gauge ${gauge}, of the sample`, tall: lines.length > 14 });
}

function drawSignal(records) {
  const mask = chooseGroups(records.groups, records.merged, records.names), { first_bin: first, edges } = records.classes;
  const bins = edges.slice(0, -1).map((low, at) => ({ low, words: `${number(low)} … ${edges[at + 1] === null ? "∞" : number(edges[at + 1])}` }));
  const lines = records.methods.map((method) => ({ name: method.name, values: bins.map((bin, at) =>
    sum(method, mask, records.groups.class, (c) => c === first + at)) }));
  const shares = (line) => line.values.map((v) => rate(v.flagged, v.cases));
  const figure = chart("Recall of every policy over the signal of a fault", 380, (svg, width) => {
    const box = { left: 52, right: width - 20, top: 34, bottom: 330 };
    const y = scale(0, 1, box.bottom, box.top, false), x = (at) => box.left + 20 + at * (box.right - box.left - 40) / (bins.length - 1);
    svg.append(...y.ticks.map((t) => h("line", { class: "grid", x1: box.left, x2: box.right, y1: y(t), y2: y(t) })),
      ...y.ticks.map((t) => h("text", { class: "soft", x: box.left - 6, y: y(t) + 4, "text-anchor": "end" }, percent(t, 0))),
      ...bins.filter((_, at) => width > 620 || at % 2 === 0).map((bin) => h("text", { class: "soft", x: x(bins.indexOf(bin)), y: box.bottom + 18, "text-anchor": "middle" },
        (bins.indexOf(bin) === 0 ? "< " + number(edges[1]) : "≥ " + number(bin.low)))),
      h("text", { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle" }, "signal: size of the fault in units of rounding"),
      h("text", { x: box.left, y: box.top - 12 }, "differing cases flagged"));
    for (const line of [...lines].sort((a, b) => (a.name in NAMED) - (b.name in NAMED))) {
      const places = shares(line).map((s, at) => s === null ? null : [x(at), y(s)]).filter(Boolean), colour = NAMED[line.name] ?? 6;
      svg.append(h("polyline", { class: `${line.name in NAMED ? "line" : "thin"} s${colour}`, points: places.map((p) => p.join(",")).join(" "), "data-policy": line.name }));
      if (line.name in NAMED) shares(line).forEach((s, at) => s === null ? 0 : svg.append(mark(colour, x(at), y(s), 4.5, told(
        `${line.name}, signal ${bins[at].words}\n${count(line.values[at].flagged)} of ${count(line.values[at].cases)} flagged, ${percent(s)}`, { class: "k" + colour }))));
    }
  });
  const table = makeTable([{ name: "policy", value: (l) => l.name, show: (l) => l.name }, ...bins.map((bin, at) => ({ name: bin.words,
    value: (l) => shares(l)[at], show: (l) => l.values[at].cases ? `${percent(shares(l)[at], 1)} of ${count(l.values[at].cases)}` : "–" }))],
    lines, { caption: "Share of differing cases flagged, by signal", mark: (l) => l.name === OURS ? "ours" : null });
  return section("signal", "How small a fault each tolerance sees", "Below 1 a fault is smaller than rounding, and nothing should flag it for sure; what fails outright is at the right end.",
    legend(Object.entries(NAMED).filter(([name]) => lines.some((l) => l.name === name)).map(([name, colour]) => [name, colour])), figure, behind(() => table));
}

function drawSweep(families, swept) {
  const tell = (s) => `${s.name}\nfalse positives ${count(s.controls.flagged)} of ${count(s.controls.cases)}, ${percent(s.fp, 3)}\nmanifest ${percent(s.recall)}`;
  return chart("False-positive rate against recall as factors and percentiles move", 400, (svg, width) => {
    const box = { left: 58, right: width - 20, top: 34, bottom: 346 }, least = Math.min(1e-4, ...swept.map((s) => s.fp || 1)) / 2;
    const bottom = Math.min(0.9, ...swept.map((s) => s.recall));
    const x = scale(least, Math.max(0.2, ...swept.map((s) => s.fp)), box.left + 26, box.right, true), y = scale(bottom, 1, box.bottom, box.top, false);
    const place = (s) => [s.fp ? x(s.fp) : box.left + 10, y(s.recall)];
    svg.append(...frame(box, x, y, { xTick: power, yTick: (t) => percent(t, bottom > 0.8 ? 1 : 0), x: "false-positive rate (0 at the left)", y: "manifest faults flagged" }).filter(Boolean));
    [...families.values()].forEach((line, at) => {
      svg.append(h("polyline", { class: `line s${at % 7}`, points: line.map((s) => place(s).join(",")).join(" ") }));
      for (const s of line) svg.append(mark(at, ...place(s), 4, told(tell(s), { class: `k${at % 7} mark` })));
    });
  });
}

function drawSweeps(records) {
  const { groups, merged, skipped } = DATA.records.coarse, mask = chooseGroups(groups, merged, records.names);
  const score = (method) => {
    const controls = sum(method, mask, groups.class, (c) => c === 0), manifest = sum(method, mask, groups.class, (c) => c === 1);
    return { ...method, controls, manifest, fp: rate(controls.flagged, controls.cases), recall: rate(manifest.flagged, manifest.cases) };
  };
  const swept = records.sweep.map(score).filter((s) => s.fp !== null && s.recall !== null), families = new Map();
  for (const s of swept) {
    const family = s.name.replace(/ × [\d.]+$/, "").replace(/, [\d.]+\)$/, ")");
    if (!families.has(family)) families.set(family, []);
    families.get(family).push(s);
  }
  const held = records.holdouts.map(score);
  const share = (part) => ({ value: (s) => rate(s[part].flagged, s[part].cases), show: (s) => s[part].cases
    ? `${percent(rate(s[part].flagged, s[part].cases), part === "controls" ? 3 : 2)} of ${count(s[part].cases)}` : "–" });
  const holdouts = makeTable([
    { name: "held out", value: (s) => s.holdout, show: (s) => s.holdout === "none" ? "none (in-sample)" : s.holdout },
    { name: "method", class: "text", value: (s) => s.name, show: (s) => s.name },
    { name: "false positives", ...share("controls") }, { name: "manifest flagged", ...share("manifest") },
    { name: "no-go", value: (s) => rate(s.manifest.noGo, s.manifest.cases), show: (s) => percent(rate(s.manifest.noGo, s.manifest.cases)) },
  ], held, { caption: "Limits made from the one part, judged on the other", mark: (s) => s.name === OURS ? "ours" : null });
  const drift = records.drift.filter((d) => (!state.op || d.group.split(" ")[0] === state.op) && (!state.device || d.to === state.device || d.from === state.device));
  const moved = drift.filter((d) => d.above).length;
  const drifts = drift.length ? makeTable([
    { name: "group", value: (d) => d.group, show: (d) => d.group }, { name: "limit of", class: "text", value: (d) => d.from, show: (d) => d.from },
    { name: "on", class: "text", value: (d) => d.to, show: (d) => d.to }, { name: "median there", value: (d) => d.before.median }, { name: "here", value: (d) => d.after.median },
    { name: "limit", value: (d) => d.limit }, { name: "largest here", value: (d) => d.after.largest },
    { name: "above", value: (d) => d.above, show: (d) => `${count(d.above)} of ${count(d.after.cases)}` },
  ], drift, { caption: `${moved} of ${drift.length} limits do not hold on the other device`, tall: true, by: "above" }) : h("p", {}, records.names.device.length > 1 ? "No limit of what is chosen was measured on two devices." : "Runs of one device only: nothing drifts.");
  const left = Object.entries(skipped).map(([name, why]) => h("p", { class: "note" }, `Hold-out ${name}: ${why}`));
  return section("sweeps", "Other factors, other hold-outs, other devices", "Each line is a gauge with one percentile, or one floor, from the smallest factor or margin to the largest. A kernel that is chosen does not act here, nor dtype and distribution on drift.",
    swept.length ? [legend([...families.keys()].map((name, at) => [name, at % 7, at])), drawSweep(families, swept)] : null,
    behind(() => makeTable([{ name: "gauge × rule", value: (s) => s.name, show: (s) => s.name }, { name: "false positives", ...share("controls") }, { name: "manifest flagged", ...share("manifest") }],
      swept, { caption: "Sweep", tall: true })), h("h3", {}, "Hold-outs"), holdouts, left, h("h3", {}, "Drift between devices"), drifts);
}

function drawCases(records, update) {
  const { names } = records;
  const cases = records.cases.filter((c) => c.kind === state.kind && FILTERS.every((name) => !state[name] || records.merged.includes(name) || names[name][c[name]] === state[name]));
  const quote = (word) => /^[\w.:+-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'"; // names are of strangers
  const command = (c) => `gonogo show ${quote(c.case)} ${quote(names.kernel[c.kernel])}${records.cuda.has(names.device[c.device]) ? " --device cuda" : ""}`;
  const words = (c) => [c.case, names.kernel[c.kernel], names.op[c.op], names.dtype[c.dtype], names.distribution[c.distribution], c.run].join(" ");
  const [search, table] = searchable("softmax f16 spike", "find", cases, words, (found) => makeTable([
    { name: "case", value: (c) => c.case, show: (c) => h("code", {}, c.case) }, { name: "kernel", class: "text", value: (c) => names.kernel[c.kernel], show: (c) => names.kernel[c.kernel] },
    { name: "run", class: "text", value: (c) => c.run, show: (c) => c.run }, { name: "signal", value: (c) => readingOf(c.signal) },
    ...["bound", "deterministic", "ulp", "absolute"].map((gauge) => ({ name: gauge, value: (c) => readingOf(c.readings[gauge]) })),
    { name: "replay", class: "text", value: command, show: (c) => h("span", {}, copyButton(command(c)), " ", h("code", {}, command(c))) },
  ], found, { caption: `${found.length} of ${cases.length} cases listed`, tall: true }), state.find, (find) => { state.find = find; writeFragment(); });
  return section("cases", "Cases to look at", "Worst: controls that read most, which set the limits. Missed: faulty results that gonogo does not flag, the largest faults first, most of them below two units of rounding. At most four of a kernel in a dtype.",
    h("div", { class: "row" }, pick("kind", KINDS, state.kind, (kind) => update({ kind })), search), table);
}

function drawProvenance(records) {
  const keys = ["gpu", "processor", "torch", "triton", "cuda", "driver", "python", "numpy", "gonogo", "commit"];
  const table = makeTable([{ name: "run", value: (r) => r.name, show: (r) => r.name }, { name: "records", value: (r) => r.records, show: (r) => count(r.records) },
    ...keys.map((key) => ({ name: key, class: "text", value: (r) => r.environment[key] ?? "", show: (r) => r.environment[key] ?? "–" })),
    ...["seed", "cases"].map((key) => ({ name: key, value: (r) => r.plan[key] ?? null, show: (r) => String(r.plan[key] ?? "–") }))],
    records.runs, { caption: "Runs and machines" });
  const left = Object.entries(records.evaluation.left_out);
  return section("provenance", "Where it comes from", `${count(records.evaluation.records)} records, ${records.how}. Every figure is one of gonogo evaluate --json, or a sum of its counts over what is filtered; limits stay those of all records.`,
    table, h("h3", {}, "In no score"), left.length ? makeTable([{ name: "why", value: (l) => l[0], show: (l) => l[0] }, { name: "records", value: (l) => l[1], show: (l) => count(l[1]) }], left,
      { caption: "Records that are left out" }) : h("p", {}, "Nothing is left out."),
    records.refused.length ? makeTable([{ name: "op", value: (r) => r.op, show: (r) => r.op }, { name: "dtype", class: "text", value: (r) => r.dtype, show: (r) => r.dtype },
      { name: "records", value: (r) => r.records, show: (r) => count(r.records) }, { name: "why", class: "wrap text", value: (r) => r.why, show: (r) => r.why || "–" }],
    records.refused.filter((r) => (!state.op || r.op === state.op) && (!state.dtype || r.dtype === state.dtype)), { caption: "Why cases were refused", tall: true }) : null,
    records.merged.length ? h("p", {}, `There are too many groups for one page: ${records.merged.join(" and ")} are not told apart, and take no filter.`) : null);
}

function drawRecords(records, update) {
  const scores = records.scores();
  const chosen = scores.find((s) => s.name === OURS) ?? scores[0];
  document.getElementById("counted").textContent = `${count(chosen.controls.cases)} results of controls and ${count(chosen.bins.all.cases)} of faulty kernels are chosen, `
    + `${count(chosen.bins.differing.cases)} of these differ, ${count(chosen.bins.manifest.cases)} are manifest.`;
  return [drawHeadline(records, scores), drawTightening(records), drawHeatMap(records, update), drawReadings(records, update), drawSignal(records),
          drawSweeps(records), drawCases(records, update), drawProvenance(records)];
}
