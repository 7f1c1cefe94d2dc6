"""Tests of the reader of assembly, on code as compilers write it."""

import unittest

from assembly import callees, functions
from check import faults

PANIC = "_RNvNtCs_4core9panicking5panic"

X86 = f"""
	.type	_RNv4avx25outer,@function
_RNv4avx25outer:
	movl	$8, %eax
	callq	before
.LBB0_1:
	vpmaddubsw	%ymm0, %ymm1, %ymm2
	callq	_RNv7AvxVnni9add_quads@PLT
	cmpq	%rax, %rcx
	jae	.LBB0_4
	decl	%eax
	jne	.LBB0_1
	retq
.LBB0_4:
	callq	{PANIC}
.Lfunc_end0:
	.type	_RNv7AvxVnni9add_quads,@function
_RNv7AvxVnni9add_quads:
	{{vex}}		vpdpbusd	%ymm0, %ymm1, %ymm2
	retq
.Lfunc_end1:
"""

TABLE = """
	.type	_RNv4avx26looped,@function
_RNv4avx26looped:
.LBB0_1:
	leaq	.LJTI0_0(%rip), %rcx
	jmpq	*%rcx
.LBB0_2:
	movq	memcpy@GOTPCREL(%rip), %rbx
	callq	*%rbx
	callq	*memset@GOTPCREL(%rip)
	callq	*8(%rax)
	jmp	.LBB0_1
.LBB0_3:
	callq	after
	retq
.Lfunc_end0:
	.section	.rodata
.LJTI0_0:
	.long	.LBB0_2-.LJTI0_0
	.long	.LBB0_3-.LJTI0_0
"""

ARM = """
	.type	_RNv4neon3dot,%function
_RNv4neon3dot:
	mov	w8, #8                          // =0x8
.LBB0_1:
	bl	_RNv4neon3add
	sdot	v0.4s, v1.16b, v2.4b[0]
	subs	w8, w8, #1
	b.ne	.LBB0_1
	bl	after
	ret
.Lfunc_end0:
"""

WASM = """
	.type	_RNv7simd1283dot,@function
_RNv7simd1283dot:
	.functype	_RNv7simd1283dot (i32) -> ()
	block   	
	loop    	                                # label1:
	local.get	0
	call	inside
	br_if   	0                               # 0: up to label1
	end_loop
	end_block                               # label0:
	call	after
	end_function
"""


class Loops(unittest.TestCase):
    def test_x86(self):
        found = functions(X86.splitlines(), "x86_64")
        outer = found["_RNv4avx25outer"]
        self.assertEqual(callees(outer, "x86_64"), {"_RNv7AvxVnni9add_quads"})
        self.assertNotIn("movl\t$8, %eax", outer.looping())
        self.assertFalse(found["_RNv7AvxVnni9add_quads"].loops)

    def test_tables_of_jumps_are_edges(self):
        found = functions(TABLE.splitlines(), "x86_64")
        self.assertEqual(callees(found["_RNv4avx26looped"], "x86_64"), {"memcpy", "memset", "*8(%rax)"})

    def test_arm(self):
        found = functions(ARM.splitlines(), "aarch64")
        self.assertEqual(callees(found["_RNv4neon3dot"], "aarch64"), {"_RNv4neon3add"})

    def test_wasm(self):
        found = functions(WASM.splitlines(), "wasm32")
        self.assertEqual(callees(found["_RNv7simd1283dot"], "wasm32"), {"inside"})

    def test_a_single_operation_in_a_loop_is_a_fault(self):
        lines = faults(functions(X86.splitlines(), "x86_64"), "x86_64")
        calls = [line for line in lines if "calls" in line]
        self.assertEqual(len(calls), 1, lines)
        self.assertIn("add_quads", calls[0])
        self.assertTrue(any("AMX, products" in line for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
