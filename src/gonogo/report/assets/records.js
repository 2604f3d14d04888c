// The groups of campaigns, what is chosen of them, and their sections in order.

const OURS = "gonogo";
const NAMED = { gonogo: 0, paper: 1, current: 2, torch_testing: 3, kernelbench: 4, flash_attention: 5 };
const BINS = ["all", "differing", "manifest"],
  KINDS = ["missed", "control"];
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
    return {
      op: ["", ...this.ops],
      dtype: ["", ...this.dtypes],
      distribution: ["", ...this.names.distribution],
      device: ["", ...this.names.device],
      kernel: ["", ...kernels],
      bin: BINS,
      gauge: this.gauges,
      kind: KINDS,
      shown: ["", ...this.ops],
    };
  }

  // Nothing is filtered.
  get isWhole() {
    return FILTERS.every((name) => !state[name]);
  }

  inBin(bin) {
    const { control, identical, manifest } = this.classes;
    return {
      control: (c) => c === control,
      all: (c) => c >= identical,
      differing: (c) => c > identical,
      manifest: (c) => c >= manifest,
    }[bin];
  }

  // Counts of every method on what is chosen; rates of the whole are those of `gonogo evaluate`.
  scores() {
    const mask = chooseGroups(this.groups, this.merged, this.names),
      classes = this.groups.class;
    return this.methods.map((method) => {
      const told = this.isWhole ? this.evaluation.policies.find((each) => each.name === method.name) : null;
      const controls = sum(method, mask, classes, this.inBin("control"));
      const bins = Object.fromEntries(BINS.map((bin) => [bin, sum(method, mask, classes, this.inBin(bin))]));
      const manifest = bins.manifest;
      return {
        name: method.name,
        how: method.gauge === "policy" ? "policy" : `${method.gauge} × ${method.rule}`,
        controls,
        bins,
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

function drawRecords(records, update) {
  const scores = records.scores();
  const chosen = scores.find((s) => s.name === OURS) ?? scores[0];
  document.getElementById("counted").textContent =
    `${count(chosen.controls.cases)} results of controls and ${count(chosen.bins.all.cases)} of faulty kernels are chosen, ` +
    `${count(chosen.bins.differing.cases)} of these differ, ${count(chosen.bins.manifest.cases)} are manifest.`;
  return [
    drawHeadline(records, scores),
    drawTightening(records),
    drawHeatMap(records, update),
    drawReadings(records, update),
    drawSignal(records),
    drawSweeps(records),
    drawCases(records, update),
    drawProvenance(records),
  ];
}
