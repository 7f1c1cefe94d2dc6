"""Calls that the loops of kernels may have, and instructions that they must have."""

import re

# Parts of the names of functions that belong to an instruction set: its module, or the type of its token.
SETS = {
    "x86_64": re.compile(r"4avx2|6avx512|3amx|7AvxVnni|4Avx2|6Avx512|4Vbmi"),
    "aarch64": re.compile(r"4neon|4Neon|7DotProd|4I8mm"),
    "wasm32": re.compile(r"7simd128|7Simd128|11RelaxedSimd"),
}

# A function without a loop is a single operation, and to call one for each vector takes several times as
# long as to compute it. These may be called in loops nevertheless: (caller, callee, reason).
ALLOWED = [
    (r"", r"^(memcpy|memset|memmove)$", "they move as much as they are told"),
    (r"attend|9Attention", r"^[*%(\d]|^x\d+$|^__indirect", "once a page: the codec of its type"),
    (r"7simd128", r"^fmaxf$", "once a query: the largest of a vector"),
    (r"7simd128", r"6lookup7vectors|do_reserve_and_handle", "once a buffer"),
    (r"attend", r"store_scores", "once a page and a tile of queries"),
    (r"4int8", r"8Int8View6scales$", "once a tile: inlined, it made six-bit weights a tenth slower"),
    (r"lookup", r"^[*%(\d]|^x\d+$", "once a table: the set's sums over all weights"),
    (r"6lookup", r"6lookup|do_reserve_and_handle", "once a stripe of rows, and once a buffer"),
    (r"KERNELS", r"4iter.*3zip", "once a value head of DeltaNet"),
    (r"KERNELS", r"4avx25lanes3exp$", "30 instructions, which the compiler shares in DeltaNet"),
]

# (architecture, name, parts of a function's name, instruction): some function that has all parts must have
# the instruction in a loop.
REQUIRED = [
    ("x86_64", "AVX2, ternary in registers", ["4Avx2", "7ternary", "4Tile"], r"vpmaddubsw"),
    ("x86_64", "AVX2, ternary batches", ["4Avx2", "7ternary", "5Batch"], r"vpmaddubsw"),
    ("x86_64", "AVX2, int8", ["4Avx2", "4int8", "4Tile"], r"vpmaddwd"),
    ("x86_64", "AVX-VNNI, ternary in registers", ["7AvxVnni", "7ternary", "4Tile"], r"vpdpbusd"),
    ("x86_64", "AVX-VNNI, ternary batches", ["7AvxVnni", "7ternary", "5Batch"], r"vpdpbusd"),
    ("x86_64", "AVX-VNNI, int8", ["7AvxVnni", "4int8", "4Tile"], r"vpdpwssd"),
    ("x86_64", "AVX2, attention", ["4avx2", "6attend"], r"vfmadd\w+ps.*%ymm"),
    ("x86_64", "AVX-512, ternary", ["6avx512", "7ternary"], r"vpdpbusd.*%zmm"),
    ("x86_64", "AVX-512, the tight layout", ["6avx512", "5tight"], r"vpermi2b|vpermt2b|vpermb"),
    ("x86_64", "AVX-512, one bit", ["6avx512", "7one_bit", "4Tile"], r"vpdpbusd.*%zmm"),
    ("x86_64", "AVX2, one bit", ["4Avx2", "7one_bit", "4Tile"], r"vpmaddubsw"),
    ("x86_64", "AVX-VNNI, one bit", ["7AvxVnni", "7one_bit", "4Tile"], r"vpdpbusd"),
    ("x86_64", "AVX-512, int8", ["6avx512", "4int8"], r"vpdpbusd.*%zmm"),
    ("x86_64", "AVX-512, attention", ["6avx512", "6attend"], r"vfmadd\w+ps.*%zmm"),
    ("x86_64", "AMX, products", ["3amx"], r"tdpbs?u?sd"),
    ("x86_64", "AMX, attention", ["3amx"], r"tdpbf16ps"),
    ("aarch64", "NEON, products", ["4neon"], r"sadalp"),
    ("aarch64", "dotprod, products", ["4neon"], r"sdot"),
    ("aarch64", "i8mm, products", ["4neon"], r"smmla"),
    ("aarch64", "NEON, one bit", ["4Neon", "7one_bit", "4Tile"], r"sadalp"),
    ("aarch64", "dotprod, one bit", ["7DotProd", "7one_bit", "4Tile"], r"sdot"),
    ("aarch64", "NEON, attention", ["4neon", "6attend"], r"fmla"),
    ("wasm32", "SIMD, products", ["7simd128"], r"i32x4\.dot_i16x8_s"),
    ("wasm32", "SIMD, one bit", ["7Simd128", "7one_bit", "4Tile"], r"i32x4\.dot_i16x8_s"),
    ("wasm32", "relaxed SIMD, one bit", ["11RelaxedSimd", "7one_bit", "4Tile"], r"relaxed_dot_i8x16_i7x16"),
    ("wasm32", "relaxed SIMD, ternary", ["7simd128", "7relaxed"], r"relaxed_dot_i8x16_i7x16"),
]
