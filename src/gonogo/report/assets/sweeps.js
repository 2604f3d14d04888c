// Factors and percentiles, hold-outs, and drift between devices.

function drawSweep(families, swept) {
  const tell = (s) =>
    `${s.name}\nfalse positives ${count(s.controls.flagged)} of ${count(s.controls.cases)}, ${percent(s.fp, 3)}\nmanifest ${percent(s.recall)}`;
  return chart("False-positive rate against recall as factors and percentiles move", 400, (svg, width) => {
    const box = { left: 58, right: width - 20, top: 34, bottom: 346 },
      least = Math.min(1e-4, ...swept.map((s) => s.fp || 1)) / 2;
    const bottom = Math.min(0.9, ...swept.map((s) => s.recall));
    const x = scale(least, Math.max(0.2, ...swept.map((s) => s.fp)), box.left + 26, box.right, true),
      y = scale(bottom, 1, box.bottom, box.top, false);
    const place = (s) => [s.fp ? x(s.fp) : box.left + 10, y(s.recall)];
    svg.append(
      ...frame(box, x, y, {
        xTick: power,
        yTick: (t) => percent(t, bottom > 0.8 ? 1 : 0),
        x: "false-positive rate (0 at the left)",
        y: "manifest faults flagged",
      }).filter(Boolean),
    );
    [...families.values()].forEach((line, at) => {
      svg.append(
        h("polyline", { class: `line s${at % 7}`, points: line.map((s) => place(s).join(",")).join(" ") }),
      );
      for (const s of line) svg.append(mark(at, ...place(s), 4, told(tell(s), { class: `k${at % 7} mark` })));
    });
  });
}

function drawSweeps(records) {
  const { groups, merged, skipped } = DATA.records.coarse,
    mask = chooseGroups(groups, merged, records.names);
  const score = (method) => {
    const controls = sum(method, mask, groups.class, (c) => c === 0),
      manifest = sum(method, mask, groups.class, (c) => c === 1);
    return {
      ...method,
      controls,
      manifest,
      fp: rate(controls.flagged, controls.cases),
      recall: rate(manifest.flagged, manifest.cases),
    };
  };
  const swept = records.sweep.map(score).filter((s) => s.fp !== null && s.recall !== null),
    families = new Map();
  for (const s of swept) {
    const family = s.name.replace(/ × [\d.]+$/, "").replace(/, [\d.]+\)$/, ")");
    if (!families.has(family)) families.set(family, []);
    families.get(family).push(s);
  }
  const held = records.holdouts.map(score);
  const share = (part) => ({
    value: (s) => rate(s[part].flagged, s[part].cases),
    show: (s) =>
      s[part].cases
        ? `${percent(rate(s[part].flagged, s[part].cases), part === "controls" ? 3 : 2)} of ${count(s[part].cases)}`
        : "–",
  });
  const holdouts = makeTable(
    [
      {
        name: "held out",
        value: (s) => s.holdout,
        show: (s) => (s.holdout === "none" ? "none (in-sample)" : s.holdout),
      },
      text("method", (s) => s.name),
      { name: "false positives", ...share("controls") },
      { name: "manifest flagged", ...share("manifest") },
      {
        name: "no-go",
        value: (s) => rate(s.manifest.noGo, s.manifest.cases),
        show: (s) => percent(rate(s.manifest.noGo, s.manifest.cases)),
      },
    ],
    held,
    {
      caption: "Limits made from the one part, judged on the other",
      mark: (s) => (s.name === OURS ? "ours" : null),
    },
  );
  const drift = records.drift.filter(
    (d) =>
      (!state.op || d.group.split(" ")[0] === state.op) &&
      (!state.device || d.to === state.device || d.from === state.device),
  );
  const moved = drift.filter((d) => d.above).length;
  const drifts = drift.length
    ? makeTable(
        [
          text("group", (d) => d.group, ""),
          text("limit of", (d) => d.from),
          text("on", (d) => d.to),
          { name: "median there", value: (d) => d.before.median },
          { name: "here", value: (d) => d.after.median },
          { name: "limit", value: (d) => d.limit },
          { name: "largest here", value: (d) => d.after.largest },
          { name: "above", value: (d) => d.above, show: (d) => `${count(d.above)} of ${count(d.after.cases)}` },
        ],
        drift,
        { caption: `${moved} of ${drift.length} limits do not hold on the other device`, tall: true, by: "above" },
      )
    : h(
        "p",
        {},
        records.names.device.length > 1
          ? "No limit of what is chosen was measured on two devices."
          : "Runs of one device only: nothing drifts.",
      );
  const left = Object.entries(skipped).map(([name, why]) => h("p", { class: "note" }, `Hold-out ${name}: ${why}`));
  return section(
    "sweeps",
    "Other factors, other hold-outs, other devices",
    "Each line is a gauge with one percentile, or one floor, from the smallest factor or margin to the largest. A kernel that is chosen does not act here, nor dtype and distribution on drift.",
    swept.length
      ? [legend([...families.keys()].map((name, at) => [name, at % 7, at])), drawSweep(families, swept)]
      : null,
    behind(() =>
      makeTable(
        [
          text("gauge × rule", (s) => s.name, ""),
          { name: "false positives", ...share("controls") },
          { name: "manifest flagged", ...share("manifest") },
        ],
        swept,
        { caption: "Sweep", tall: true },
      ),
    ),
    h("h3", {}, "Hold-outs"),
    holdouts,
    left,
    h("h3", {}, "Drift between devices"),
    drifts,
  );
}
