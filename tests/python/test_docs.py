# SPDX-License-Identifier: MIT
"""The examples of docs/python.md, run as they are there."""

import os
import re
import subprocess
import sys
import unittest

import support

SOURCE = os.environ["PEERLANE_SOURCE"]


class Examples(support.Case):
    def run_example(self, number):
        with open(os.path.join(SOURCE, "docs/python.md"), encoding="utf-8") as f:
            examples = re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
        self.assertEqual(len(examples), 3)
        # Without torch, even where it is installed.
        self.file("torch.py", b"raise ImportError")
        return subprocess.run(
            [sys.executable, "-c", examples[number]],
            cwd=self.dir,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
            check=True,
        ).stdout

    def test_weights(self):
        support.write_model(
            self.path("model.safetensors"),
            [("a", "F32", (2, 3), bytes(24)), ("b", "BF16", (), bytes(2))],
        )
        self.assertEqual(self.run_example(0), "a F32 (2, 3)\nb BF16 ()\n")

    def test_shards(self):
        total = 0
        for i in range(2):
            data = support.pattern(24 * 2048, i)
            total += sum(data)
            self.file(f"train-{i}.bin", data)
        lines = self.run_example(1).splitlines()
        self.assertEqual([line.rpartition(" ")[0] for line in lines], ["(16, 2048)"] * 3)
        self.assertEqual(sum(int(line.rpartition(" ")[2]) for line in lines), total)

    def test_checkpoint(self):
        self.assertEqual(self.run_example(2), "1000 (64, 256)\n")
        tensors, metadata = support.parse(self.path("checkpoint.safetensors"))
        self.assertEqual(tensors["layer.weight"][:2], ("F32", (64, 256)))
        self.assertEqual(metadata["epoch"], "3")
        self.assertEqual(sorted(os.listdir(self.dir)), ["checkpoint.safetensors", "torch.py"])


if __name__ == "__main__":
    unittest.main()
