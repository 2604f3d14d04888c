// Runs, machines, and what is in no score.

function drawProvenance(records) {
  const keys = ["gpu", "processor", "torch", "triton", "cuda", "driver", "python", "numpy", "gonogo", "commit"];
  const table = makeTable(
    [
      text("run", (r) => r.name, ""),
      { name: "records", value: (r) => r.records, show: (r) => count(r.records) },
      ...keys.map((key) => ({
        name: key,
        class: "text",
        value: (r) => r.environment[key] ?? "",
        show: (r) => r.environment[key] ?? "–",
      })),
      ...["seed", "cases"].map((key) => ({
        name: key,
        value: (r) => r.plan[key] ?? null,
        show: (r) => String(r.plan[key] ?? "–"),
      })),
    ],
    records.runs,
    { caption: "Runs and machines" },
  );
  const left = Object.entries(records.evaluation.left_out);
  return section(
    "provenance",
    "Where it comes from",
    `${count(records.evaluation.records)} records, ${records.how}. Every figure is one of gonogo evaluate --json, or a sum of its counts over what is filtered; limits stay those of all records.`,
    table,
    ...records.incomplete.map((line) => h("p", {}, line)),
    h("h3", {}, "In no score"),
    left.length
      ? makeTable(
          [text("why", (l) => l[0], ""), { name: "records", value: (l) => l[1], show: (l) => count(l[1]) }],
          left,
          { caption: "Records that are left out" },
        )
      : h("p", {}, "Nothing is left out."),
    records.refused.length
      ? makeTable(
          [
            text("op", (r) => r.op, ""),
            text("dtype", (r) => r.dtype),
            { name: "records", value: (r) => r.records, show: (r) => count(r.records) },
            { name: "why", class: "wrap text", value: (r) => r.why, show: (r) => r.why || "–" },
          ],
          records.refused.filter(
            (r) => (!state.op || r.op === state.op) && (!state.dtype || r.dtype === state.dtype),
          ),
          {
            caption: "Why cases were refused, on inputs with NaN and infinities too; the most frequent reasons",
            tall: true,
          },
        )
      : null,
    records.merged.length
      ? h(
          "p",
          {},
          `There are too many groups for one page: ${records.merged.join(" and ")} are not told apart, and take no filter.`,
        )
      : null,
  );
}
