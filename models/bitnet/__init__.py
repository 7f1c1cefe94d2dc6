"""BitNet b1.58 in PyTorch, shared by `models/train` and `models/distill`: ternary matrices, 8-bit
activations, complementary masks, export, checkpoints, comparison with `transformers`, and Muon.

The code runs on PyTorch 1.13 and newer.
"""
