"""An op whose kernels do whatever a kernel should not."""

from gonogo.ops import Input, Kernel, Op

FAULTS = {
    "segfaults": "crashed",
    "hangs_in_python": "timed-out",
    "hangs_in_c": "timed-out",
    "raises": "raised",
    "exits": "raised",
    "exits_at_once": "crashed",
    "eats_memory": "out-of-memory",
    "asks_for_too_much": "out-of-memory",
    "returns_other_shape": "wrong-shape",
    "returns_other_dtype": "wrong-dtype",
    "returns_its_input": "aliased",
    "doubles_in_place": "aliased",
    "returns_none": "no-output",
    "returns_text": "no-output",
    "returns_sparse": "no-output",
    "returns_meta": "no-output",
    "writes_into_its_input": "inputs-changed",
    "leaves_a_hole": "unwritten",
    "leaves_a_hole_in_numpy": "unwritten",
    "never_the_same": "not-repeatable",
    "returns_one_buffer": "not-repeatable",
    "makes_nan": "non-finite",
    "prints_megabytes": "ok",
    "strides_back_in_numpy": "ok",
    "calls_itself_control": "ok",
}
OP = Op(
    name="naughty",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (2, 3), "cols": (5, 8)},
    main="cols",
    kernels=(
        Kernel("doubles", "torch"),
        *(
            Kernel(name, "numpy" if name.endswith("numpy") else "torch", "faulty", calibrate_against="doubles")
            for name in FAULTS
        ),
        Kernel("doubles_too", "torch"),
    ),
)
