"""Run `python attention_calls.py LIBRARY [VARIANT...]`: call forward and backward of each variant
(of all in the example by default). Print the largest error of each pair, as a share of what is
allowed, as JSON. With `--name`, only ask a variant for its name, which needs no device."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "attention"))

import attention
import problems

library = attention.load(sys.argv[1])
if sys.argv[2:] == ["--name"]:
    print(
        library.backward_name(
            64, "fp16", window=(16, 1), mask="window", seqstart_q=[0, 1], seqstart_k=[0, 1], alibi_slopes=[1.0]
        )
    )
    sys.exit()
wanted = set(sys.argv[2:])
found = {}
for case in problems.every_case():
    if not wanted or case.variant in wanted:
        problem = problems.make_problem(case)
        answers = [*problems.forward(library, case, problem), *problems.backward(library, case, problem)]
        found[case.variant] = max(a.error() for a in answers)
assert not wanted - set(found), f"no such variants: {wanted - set(found)}"
print(json.dumps(found))
