// False positives against recall, every policy one mark, and the same as a table.

const tellScore = (s) =>
  `${s.name}\nfalse positives ${count(s.controls.flagged)} of ${count(s.controls.cases)}` +
  ` (at most ${percent(s.fpUpper, 3)} with 95 % confidence)\nmanifest faults flagged ${count(s.bins.manifest.flagged)}` +
  ` of ${count(s.bins.manifest.cases)}, ${percent(s.recall)}`;

// Counted here as everywhere in gonogo evaluate; a lock file has none of these.
const tellVacuous = (limits) =>
  `Some controls are wrong on some cases, so that limits made from them let anything pass: ${limits.map((l) => `${l.op}, ${l.contract} (${number(l.value)})`).join("; ")}. ` +
  "gonogo calibrate leaves such a limit out and holds kernels to the one for all ops; here what they read is judged by it, and no false alarm.";

function drawHeadline(records, scores) {
  const shown = scores.filter((s) => s.controls.cases || s.bins.manifest.cases);
  const cards = ["gonogo", "paper", "current"]
    .map((name) => scores.find((s) => s.name === name))
    .filter(Boolean)
    .map((s) =>
      h(
        "div",
        { class: "card" + (s.name === OURS ? " first" : "") },
        h(
          "small",
          {},
          { gonogo: "gonogo’s limits", paper: "the paper’s rule", current: "hand-picked tolerances" }[s.name],
        ),
        h("b", {}, s.bins.manifest.cases ? `${percent(s.recall)} caught` : "no fault"),
        h("small", {}, `of ${count(s.bins.manifest.cases)} manifest faults`),
        h("b", {}, s.controls.cases ? `${count(s.controls.flagged)} false alarms` : "no control"),
        h("small", {}, `of ${count(s.controls.cases)} correct results: at most ${percent(s.fpUpper, 3)}`),
      ),
    );
  const plotted = shown.filter((s) => s.fp !== null && s.recall !== null);
  const figure = chart(
    "False-positive rate of every policy, on a logarithmic axis, against its recall of manifest faults",
    430,
    (svg, width) => {
      const narrow = width < 620,
        box = { left: 52, right: width - (narrow ? 12 : 130), top: 44, bottom: 380 };
      const least = Math.min(1e-4, ...plotted.map((s) => s.fp || s.fpUpper)) / 3;
      const lowest = Math.max(0, Math.floor(10 * Math.min(0.9, ...plotted.map((s) => s.recallInterval[0]))) / 10);
      const x = scale(least, 1, box.left + 26, box.right, true),
        y = scale(lowest, 1, box.bottom, box.top, false);
      const place = (s) => (s.fp ? x(s.fp) : box.left + 10);
      svg.append(
        ...frame(box, x, y, {
          xTick: power,
          yTick: (t) => percent(t, 0),
          x: "false-positive rate (0 at the left)",
          y: "manifest faults flagged",
        }).filter(Boolean),
        h("text", { class: "soft", x: box.left + 10, y: box.bottom + 16, "text-anchor": "middle" }, "0"),
      );
      const ordered = [...plotted].sort((a, b) => (a.name in NAMED) - (b.name in NAMED));
      for (const s of ordered) {
        const colour = NAMED[s.name] ?? 6,
          [low, high] = s.recallInterval;
        svg.append(
          h("line", {
            class: "s" + colour,
            x1: place(s),
            x2: x(s.fpUpper),
            y1: y(s.recall),
            y2: y(s.recall),
            opacity: 0.7,
          }),
          h("line", { class: "s" + colour, x1: place(s), x2: place(s), y1: y(low), y2: y(high), opacity: 0.7 }),
          mark(
            colour,
            place(s),
            y(s.recall),
            s.name === OURS ? 7 : 5,
            told(tellScore(s), {
              class: "k" + colour + " mark",
              tabindex: 0,
              role: "img",
              "aria-label": tellScore(s),
              "data-policy": s.name,
            }),
          ),
        );
      }
      placeLabels(
        svg,
        [...ordered]
          .reverse()
          .map((s) => ({ x: place(s), y: y(s.recall), words: s.name, colour: NAMED[s.name] ?? 6 })),
        { ...box, limit: width },
      );
    },
  );
  const caught = (bin) => ({
    name: `${bin} flagged`,
    value: (s) => s[bin === "manifest" ? "recall" : bin],
    show: (s) => percent(s[bin === "manifest" ? "recall" : bin]),
  });
  const table = makeTable(
    [
      text("policy", (s) => s.name, ""),
      text("gauge × rule", (s) => s.how),
      {
        name: "false positives",
        value: (s) => s.controls.flagged,
        show: (s) => `${count(s.controls.flagged)}/${count(s.controls.cases)}`,
      },
      { name: "rate", value: (s) => s.fp, show: (s) => percent(s.fp, 3) },
      { name: "at most (95 %)", value: (s) => s.fpUpper, show: (s) => percent(s.fpUpper, 3) },
      caught("all"),
      caught("differing"),
      caught("manifest"),
      {
        name: "95 % interval",
        value: (s) => s.recallInterval?.[0],
        show: (s) => (s.recallInterval ? s.recallInterval.map((v) => percent(v)).join(" … ") : "–"),
      },
      { name: "manifest no-go", value: (s) => s.noGo, show: (s) => percent(s.noGo) },
      { name: "manifest cases", value: (s) => s.bins.manifest.cases, show: (s) => count(s.bins.manifest.cases) },
    ],
    shown,
    { caption: `All policies, ${records.how}`, mark: (s) => (s.name === OURS ? "ours" : null) },
  );
  return section(
    "headline",
    "What each tolerance costs and catches",
    `Left is quiet on correct kernels, up is sharp on faulty ones. ${records.how[0].toUpperCase() + records.how.slice(1)}; policies of the field are ` +
      "as they stand. Manifest: a fault of two units of rounding or more. Bars are 95 % intervals.",
    h("div", { class: "cards" }, cards),
    plotted.length
      ? figure
      : h("p", {}, "What is chosen has no controls, or no manifest faults: there is nothing to compare."),
    records.vacuous.length ? h("p", { class: "note" }, tellVacuous(records.vacuous)) : null,
    table,
  );
}
