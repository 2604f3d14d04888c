// A batch of solutions of a benchmark, by model and one by one.

function drawSolutions(batch) {
  const { solutions, models } = batch;
  const words = (s) => `${s.problem} ${s.solution} ${s.why} ${s.decision} ${s.comparison}`;
  const decisions = ["go", "suspect", "no-go", "refused"];
  const figure = chart("Verdicts by model, as shares of its solutions", 0, (svg, width) => {
    const left = Math.min(190, width * 0.4),
      step = 30,
      right = width - 20;
    models.forEach((model, at) => {
      let x = left;
      svg.append(
        h("text", { x: left - 8, y: 20 + at * step, "text-anchor": "end" }, fit(model.model || "all", left - 8)),
      );
      decisions.forEach((decision, place) => {
        const share = ((right - left) * model[decision]) / model.solutions;
        if (!share) return;
        svg.append(
          h(
            "rect",
            told(`${model.model}: ${model[decision]} of ${model.solutions} ${decision}`, {
              class: ["k0", "k4", "fails", "k6"][place] + " mark",
              x,
              y: 6 + at * step,
              width: Math.max(1, share - 1),
              height: step - 10,
            }),
          ),
          share > 26
            ? h("text", { x: x + 5, y: 20 + at * step, style: "fill: var(--paper)" }, String(model[decision]))
            : "",
        );
        x += share;
      });
    });
    return 16 + models.length * step;
  });
  const byModel = makeTable(
    [
      { name: "model", value: (m) => m.model, show: (m) => m.model || "–" },
      ...["solutions", ...decisions].map((name) => ({ name, value: (m) => m[name] })),
      { name: "own check passes", value: (m) => m.own },
      { name: "own check too loose", value: (m) => m.loose },
      { name: "too strict", value: (m) => m.strict },
    ],
    models,
    { caption: "By model" },
  );
  const [search, table] = searchable("softmax gpt no-go", "solutions", solutions, words, (found) =>
    makeTable(
      [
        text("problem", (s) => s.problem, ""),
        text("solution", (s) => s.solution),
        { name: "gonogo", class: "text", value: (s) => s.decision, show: (s) => badge(s.decision) },
        {
          name: "own check",
          class: "text",
          value: (s) => String(s.own),
          show: (s) => (s.own === null ? "–" : s.own ? "passes" : "fails"),
        },
        text("own check is", (s) => s.comparison),
        { name: "contract that fits", class: "text", value: (s) => s.fits ?? "", show: (s) => s.fits ?? "–" },
        { name: "why", class: "wrap text", value: (s) => s.why, show: (s) => s.why || "–" },
      ],
      found,
      {
        caption: `${found.length} of ${batch.count} solutions${batch.count > solutions.length ? `; those on which the two verdicts differ, and the first others: ${solutions.length} are listed` : ""}`,
        tall: true,
      },
    ),
  );
  return [
    section(
      "solutions",
      "Solutions of a benchmark",
      `${batch.told}. gonogo’s verdict stands beside the benchmark’s own: too loose where it passes what gonogo does not.`,
      legend([
        ["go", 0, 1],
        ["suspect", 4, 1],
        ["no-go", 1, 1],
        ["refused", 6, 1],
      ]),
      figure,
      byModel,
      h("div", { class: "row" }, search),
      table,
    ),
  ];
}
