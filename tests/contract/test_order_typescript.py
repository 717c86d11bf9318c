"""The TypeScript of the documents compiles against the contract, and derives the same keys as the fleet."""

import json
from pathlib import Path

import pytest

from nova_workers.contracts.orders import AiWorkOrderV1, derive_key_hash
from tests.support.data.work_orders import EXAMPLES, example_order
from tests.support.servers.typescript_compiler import compile_order_example, run_module, why_no_typescript

SECRET = "a secret of this tenant"
DIFFICULT = {
    "texts": ['€$\u000f\nA\'B"\\\\"/', "\u2028", "\U0001f600"],
    "numbers": [333333333.33333329, 1e30, 4.5, 2e-3, 1e-27, -0.0, 1e21, 123456789012345680000],
    "\U0001f600": None,
    "\ufb33": True,
    "": {"z": 1.0, "a": []},
}
pytestmark = pytest.mark.skipif(why_no_typescript() is not None, reason=str(why_no_typescript()))


def test_the_example_compiles_and_derives_the_keys_that_the_fleet_derives(tmp_path: Path) -> None:
    compile_order_example(tmp_path)
    orders = [example_order(policy_id) for policy_id in EXAMPLES]
    orders.append(example_order(EXAMPLES[0]) | {"inputs": DIFFICULT})
    (tmp_path / "orders.json").write_text(json.dumps(orders), "utf-8")
    printed = run_module(
        'import { readFileSync } from "node:fs";\n'
        'import { keyHash } from "./example.js";\n'
        'const orders = JSON.parse(readFileSync("orders.json", "utf-8"));\n'
        f"console.log(JSON.stringify(orders.map((order) => keyHash(order, {json.dumps(SECRET)}))));\n",
        tmp_path,
    )
    sent = json.loads(json.dumps(orders), parse_int=lambda text: float(text) if len(text) > 15 else int(text))
    assert json.loads(printed) == [derive_key_hash(AiWorkOrderV1.from_wire(order), SECRET) for order in sent]


def test_fields_that_are_undefined_are_no_part_of_the_key(tmp_path: Path) -> None:
    compile_order_example(tmp_path)
    order = example_order(EXAMPLES[0])
    printed = run_module(
        'import { keyHash } from "./example.js";\n'
        f"const order = {json.dumps(order)};\n"
        "order.constraints.maxTokensTotal = undefined;\n"
        "order.inputs = {...order.inputs, gone: undefined, list: [1, undefined, {inner: undefined}]};\n"
        f"const key = keyHash(order, {json.dumps(SECRET)});\n"
        "console.log(JSON.stringify({key, order}));\n",
        tmp_path,
    )
    sent = json.loads(printed)
    assert sent["order"]["inputs"]["list"] == [1, None, {}]
    assert sent["key"] == derive_key_hash(AiWorkOrderV1.from_wire(sent["order"]), SECRET)
